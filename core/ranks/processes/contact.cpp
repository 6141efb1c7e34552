#include "core/ranks/processes/contact.h"

#include <cstdint>

#include "core/json.h"

namespace quire {

std::optional<Contact> parsed_contact(const std::string& text) {
  const auto json = parse_json(text);
  if (!json.is_object() || json.size() != 3) return std::nullopt;
  const auto addresses = json.find("addresses");
  const auto port = json.find("port");
  const auto token = json.find("token");
  if (addresses == json.end() || port == json.end() || token == json.end()) return std::nullopt;
  const bool fits = addresses->is_array() && !addresses->empty() && port->is_number_unsigned() &&
                    port->get<uint64_t>() >= 1 && port->get<uint64_t>() <= UINT16_MAX && token->is_string() &&
                    !token->get<std::string>().empty();
  if (!fits) return std::nullopt;
  Contact contact{{}, port->get<int>(), token->get<std::string>()};
  for (const auto& address : *addresses) {
    if (!address.is_string()) return std::nullopt;
    contact.addresses.push_back(address.get<std::string>());
  }
  return contact;
}

bool is_contact(const std::string& text) {
  return parsed_contact(text).has_value();
}

}  // namespace quire
