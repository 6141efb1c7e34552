// Writes a checkpoint under quire's own names (own_layout.h).
#include <algorithm>

#include "core/files/file_io.h"
#include "trainers/exchange/export.h"
#include "trainers/exchange/own_layout.h"
#include "trainers/exchange/own_parts.h"

namespace quire {

ExportReport export_own(const CheckpointReader& reader, const std::filesystem::path& folder) {
  ExportReport report;
  for (const std::string& part : reader.parts()) {
    const WrittenTensors written = write_own_part(reader, part, folder);
    report.tensors += written.tensors;
    report.bytes += written.bytes;
    report.files += written.files;
  }
  const nlohmann::ordered_json json{{"format", "quire export"},
                                    {"version", 1},
                                    {"step", reader.step()},
                                    {"parts", reader.parts()},
                                    {"meta", reader.meta()}};
  for (const char* name : {"config.yaml", "tokenizer.txt"}) write_file_durably(folder / name, reader.read_text(name));
  write_file_durably(folder / kOwnFile, json.dump(1) + "\n");
  return report;
}

}  // namespace quire
