// What rank 0 tells the others so that they can reach it: a JSON object with "addresses", "port" and "token".
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

// Nothing for any other text.
std::optional<Contact> parsed_contact(const std::string& text);
// Whether a text is what Rendezvous::contact() gives.
bool is_contact(const std::string& text);

}  // namespace quire
