#pragma once

#include <lockcore/config.hpp>

#include <optional>
#include <string>

namespace lockcore::redis {

/// Returns the command that authenticates a connection, with the password that password_file has at this moment.
///
/// Out:    empty if the node has no password; also if the file can't be read: `fault` then says why.
/// Limits: 4096 bytes of the file, without the line ends at its end. It has to be a regular file, so that it is read
///         without waiting.
std::optional<std::string> format_auth(const node_address& address, std::string& fault);

}  // namespace lockcore::redis
