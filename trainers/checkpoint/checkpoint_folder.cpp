#include "trainers/checkpoint/checkpoint_folder.h"

#include <fcntl.h>

#include "core/files/file_io.h"
#include "core/files/hdf5_file.h"

namespace quire {

void CheckpointFolder::write_bytes(const std::string& name, std::span<const std::byte> bytes) {
  write_file_durably(path_ / name, bytes);
  files_.push_back({name, static_cast<int64_t>(bytes.size()), checksum_of(bytes)});
}

void CheckpointFolder::write(const std::string& name, std::string_view text) {
  write_bytes(name, std::as_bytes(std::span(text)));
}

// Files are built in memory, so a large part is divided into several.
void CheckpointFolder::write(const CheckpointPart& part, int64_t part_file_bytes, const FileShare& share) {
  const auto write_file = [&](int number, std::span<const NamedTensor> tensors) {
    if (!share.has(number)) return;
    Hdf5Writer writer;
    if (number == 1) {
      for (const auto& [name, text] : part.texts) writer.put_text("texts/" + name, text);
    }
    for (const NamedTensor& named : tensors) writer.put("tensors/" + named.name, named.tensor.to(kCpu));
    write_bytes(part_file_name(part.file, number), writer.finish());
  };
  const std::span<const NamedTensor> all(part.tensors);
  int number = 1;
  size_t begin = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t more = all[i].tensor.bytes();
    if (bytes > 0 && bytes + more > part_file_bytes) {
      write_file(number++, all.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += more;
  }
  write_file(number, all.subspan(begin));
}

void CheckpointFolder::write_streamed(const std::string& part, std::span<const StreamedTensor> tensors,
                                      int64_t part_file_bytes) {
  const auto bytes_of = [](const StreamedTensor& tensor) {
    return tensor.shape.numel() * static_cast<int64_t>(size_of(tensor.dtype));
  };
  std::vector<File> written;  // flushed together: the disk works while the next one is made
  int number = 0;
  size_t next = 0;
  do {
    const std::string name = part_file_name(part, ++number);
    Hdf5Writer writer(path_ / name);
    int64_t bytes = 0;
    for (; next < tensors.size() && (bytes == 0 || bytes + bytes_of(tensors[next]) <= part_file_bytes); ++next) {
      const StreamedTensor& tensor = tensors[next];
      writer.put_in_pieces("tensors/" + tensor.name, tensor.dtype, tensor.shape, tensor.fill);
      bytes += bytes_of(tensor);
    }
    writer.close();
    File& file = written.emplace_back(File::open(path_ / name));
    // Advice to begin writing; flush() waits for the rest and reports failures.
    ::sync_file_range(file.descriptor(), 0, 0, SYNC_FILE_RANGE_WRITE);
    files_.push_back({name, file.size(), checksum_of_file(file)});
  } while (next < tensors.size());
  for (File& file : written) file.flush();
}

void CheckpointFolder::write_raw(const std::string& name, const std::function<void(const WriteBytes& write)>& fill) {
  File file = File::create(path_ / name);
  Checksum checksum;
  int64_t written = 0;
  fill([&](std::span<const std::byte> bytes) {
    file.write(bytes);
    checksum.add(bytes);
    written += static_cast<int64_t>(bytes.size());
  });
  file.flush();
  files_.push_back({name, written, checksum.text()});
}

void finish_checkpoint(const std::filesystem::path& folder, int64_t step, const std::vector<ManifestFile>& files) {
  Manifest manifest;
  manifest.step = step;
  manifest.files = files;
  write_file_durably(folder / "manifest.json", std::string_view(manifest.to_json()));
  flush_directory(folder);
}

}  // namespace quire
