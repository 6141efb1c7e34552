// The contact of rank 0, with which the others reach it: a JSON object with "addresses", "port" and "token".
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace quire {

struct Contact {
  std::vector<std::string> addresses;
  int port = 0;
  std::string token;
};

// Returns nothing when the text is no contact.
std::optional<Contact> parsed_contact(const std::string& text);
// Returns whether a text has the form of Rendezvous::contact().
bool is_contact(const std::string& text);

}  // namespace quire
