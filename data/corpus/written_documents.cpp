#include "data/corpus/written_documents.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/check.h"

namespace quire {

namespace {

bool is_split_name(const std::string& name) {
  return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
                              std::string::npos;
}

struct HashOfHash {
  size_t operator()(const Hash128& hash) const { return hash[0]; }
};

// Finds a document with or without the ending .txt: documents are named without it, and lists of file names have it.
std::optional<std::string> find_name(const WrittenSplit& split, const std::string& name) {
  constexpr std::string_view kEnding = ".txt";
  const std::string other =
      name.ends_with(kEnding) ? name.substr(0, name.size() - kEnding.size()) : name + std::string(kEnding);
  for (const std::string& spelling : {name, other}) {
    if (split.names.count(spelling) > 0) return spelling;
  }
  return std::nullopt;
}

}  // namespace

void WrittenDocuments::begin_split(const std::string& split) {
  if (!is_split_name(split)) {
    fail(ErrorKind::config, "split name \"{}\": use letters, digits, '_' and '-'", split);
  }
  splits_[split];
}

WrittenSplit& WrittenDocuments::find_split(const std::string& split) {
  const auto found = splits_.find(split);
  QUIRE_CHECK(found != splits_.end(), "corpus writer: there is no split {}", split);
  return found->second;
}

void WrittenDocuments::add(const std::string& split, WrittenDocument document, const std::string& origin) {
  documents_.push_back(std::move(document));
  add(split, &documents_.back(), origin);
}

void WrittenDocuments::add(const std::string& split, const WrittenDocument* document, const std::string& origin) {
  WrittenSplit& into = find_split(split);
  if (!into.names.insert(document->name).second) {
    fail(ErrorKind::data, "{}: split {} has a document named {} already; names have to differ", origin, split,
         document->name);
  }
  into.documents.push_back(document);
}

int64_t WrittenDocuments::documents(const std::string& split) const {
  const auto found = splits_.find(split);
  return found == splits_.end() ? 0 : static_cast<int64_t>(found->second.documents.size());
}

int64_t WrittenDocuments::dropped(const std::string& split) const {
  const auto found = splits_.find(split);
  return found == splits_.end() ? 0 : found->second.dropped;
}

template <typename Moves>
void WrittenDocuments::move_if(const std::string& from, const std::string& to, const Moves& moves) {
  begin_split(to);
  WrittenSplit& source = find_split(from);
  std::vector<const WrittenDocument*> stay;
  for (const WrittenDocument* document : source.documents) {
    if (!moves(*document)) {
      stay.push_back(document);
      continue;
    }
    source.names.erase(document->name);
    add(to, document, corpus_);
  }
  source.documents = std::move(stay);
}

void WrittenDocuments::move_documents(const std::string& from, const std::string& to,
                                      const std::vector<std::string>& names, const std::string& origin) {
  std::unordered_map<std::string, const std::string*> moved;  // the name of a document, and its spelling in the list
  for (const std::string& name : names) {
    const std::optional<std::string> found = find_name(find_split(from), name);
    if (!found) {
      fail(ErrorKind::data, "{}: no document is named \"{}\" (names are paths below --input, with or without .txt)",
           origin, name);
    }
    const auto [at, is_new] = moved.emplace(*found, &name);
    if (!is_new) {
      fail(ErrorKind::data, "{}: \"{}\" and \"{}\" name the same document", origin, *at->second, name);
    }
  }
  move_if(from, to, [&](const WrittenDocument& document) { return moved.count(document.name) > 0; });
}

void WrittenDocuments::move_share(const std::string& from, const std::string& to, int64_t count) {
  std::vector<Hash128> hashes;
  for (const WrittenDocument* document : find_split(from).documents) hashes.push_back(document->hash);
  const auto index = static_cast<size_t>(count) - 1;
  QUIRE_CHECK(count > 0 && index < hashes.size(), "corpus writer: a share of {} documents of {}", count, hashes.size());
  std::nth_element(hashes.begin(), hashes.begin() + static_cast<std::ptrdiff_t>(index), hashes.end());
  move_if(from, to, [limit = hashes[index]](const WrittenDocument& document) { return document.hash <= limit; });
}

void WrittenDocuments::check_duplicates() const {
  std::unordered_map<Hash128, std::pair<const std::string*, const WrittenDocument*>, HashOfHash> seen;
  for (const auto& [name, split] : splits_) {
    for (const WrittenDocument* document : split.documents) {
      const auto [at, is_new] = seen.try_emplace(document->hash, &name, document);
      const auto [other_split, other] = at->second;
      if (is_new || *other_split == name) continue;
      fail(ErrorKind::data, "split {}: {} is the same text as {} of split {}; remove one, or use --allow-duplicates",
           name, document->name, other->name, *other_split);
    }
  }
}

}  // namespace quire
