// BOS and EOS of a tokenizer, which stand in files beside it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace quire {

struct SpecialNames {
  // A token by its text or its id; with neither, there is none.
  struct Name {
    std::optional<std::string> text;
    std::optional<int64_t> id;
    bool given() const { return text.has_value() || id.has_value(); }
  };
  Name bos;
  Name eos;
};

// Reads tokenizer_config.json of a folder, and config.json for what that does not mention. Files may be missing. Throws
// Error(data) that names the file.
SpecialNames read_special_names(const std::filesystem::path& folder);

struct SpecialIds {
  int32_t bos = 0;
  int32_t eos = 0;
};

// Finds the ids of the names in the text of a tokenizer.json. A name that it does not have becomes an added token of
// it. Throws Error(data) when there is no EOS.
SpecialIds resolve_special_names(const SpecialNames& names, std::string& json);

}  // namespace quire
