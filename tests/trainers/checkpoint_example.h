// A small checkpoint whose content follows from its step.
#pragma once

#include <string>
#include <vector>

#include "core/files/file_io.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/checkpoint_meta.h"

namespace quire {

inline std::vector<CheckpointPart> example_parts(int64_t step, int64_t size = 1000) {
  std::vector<float> weights(static_cast<size_t>(size));
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(step) + 0.5F * static_cast<float>(i);
  std::vector<int64_t> cursor{step, -step, int64_t{1} << 40};
  return {{"model",
           {{"blocks.0.mlp.up", Tensor::from(weights, {size / 10, 10})},
            {"blocks.0.scale", Tensor::from(std::vector<double>{0.1}, {1})}},
           {{"tokenizer", "bytes"}}},
          {"optimizer", {{"blocks.0.mlp.up.m", Tensor::from(weights, {size})}}, {}},
          {"state-00000000-00000008", {{"cursor", Tensor::from(cursor, {3})}}, {}}};
}

inline constexpr const char* kExampleRaw = "state-00000000-00000008.rows";

// Returns the bytes of a file that is written in pieces.
inline std::vector<std::byte> example_bytes(int64_t step, int64_t raw_bytes) {
  std::vector<std::byte> bytes(static_cast<size_t>(raw_bytes));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((static_cast<size_t>(step) + i) % 251);
  return bytes;
}

inline std::filesystem::path write_example(const std::filesystem::path& folder, int64_t step, int64_t size = 1000,
                                           int64_t raw_bytes = 1000) {
  const auto write_files = [&](CheckpointFolder& into) {
    for (const CheckpointPart& part : example_parts(step, size)) into.write(part);
    into.write_raw(kExampleRaw, [&](const CheckpointFolder::WriteBytes& write) {
      constexpr size_t kPiece = 4099;
      const std::vector<std::byte> bytes = example_bytes(step, raw_bytes);
      for (size_t begin = 0; begin < bytes.size(); begin += kPiece) {
        write(std::span(bytes).subspan(begin, std::min(kPiece, bytes.size() - begin)));
      }
    });
  };
  return write_checkpoint(folder, step, write_files,
                          CheckpointMeta{.step = step, .tokens = step * 100, .rows = 8}.to_json(),
                          {{"config.yaml", "run: {seed: 1}\n"}});
}

inline bool holds_example(const CheckpointReader& reader, int64_t size = 1000, int64_t raw_bytes = 1000) {
  const auto parts = example_parts(reader.step(), size);
  if (reader.parts().size() != parts.size() || reader.meta().at("tokens") != reader.step() * 100) return false;
  for (const CheckpointPart& expected : parts) {
    const CheckpointPart part = reader.read_part(expected.file);
    if (part.texts != expected.texts || part.tensors.size() != expected.tensors.size()) return false;
    for (size_t i = 0; i < part.tensors.size(); ++i) {
      const Tensor& a = part.tensors[i].tensor;
      const Tensor& b = expected.tensors[i].tensor;
      if (part.tensors[i].name != expected.tensors[i].name || a.dtype() != b.dtype() || a.shape() != b.shape())
        return false;
      std::vector<std::byte> left(static_cast<size_t>(a.bytes()));
      std::vector<std::byte> right(static_cast<size_t>(b.bytes()));
      a.download(left.data());
      b.download(right.data());
      if (left != right) return false;
    }
  }
  if (read_file(reader.path() / kExampleRaw) != example_bytes(reader.step(), raw_bytes)) return false;
  return reader.read_text("config.yaml") == "run: {seed: 1}\n";
}

}  // namespace quire
