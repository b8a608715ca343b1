#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::fuzz {

/// The limits of the targets, small so that short inputs reach them.
inline constexpr std::size_t header_max_bytes = 1024;
inline constexpr std::size_t header_fields_max = 16;
inline constexpr std::size_t body_max_bytes = 2048;

/// A request as a connection gave it.
struct read_request {
    std::string text;          ///< All that a handler sees of it, and the credentials.
    std::string handled_text;  ///< Method, target and body, as the target of the session describes them.
    std::string body;
    bool is_head = false;
    bool keep_alive = false;
    std::size_t end = 0;  ///< The position in the connection's bytes that follows it.
};

/// The requests of a connection's bytes, and why no more followed.
struct connection_reading {
    enum class ending { incomplete, refused, closed };
    std::vector<read_request> requests;
    ending end = ending::incomplete;
};

/// Reads requests with the product's parser. The bytes arrive in the given pieces.
connection_reading read_connection(const std::vector<std::string_view>& pieces);

/// Where the message at the beginning of `bytes` ends, by a strict reading of RFC 9112,
/// section 6, that shares no code with the product.
struct message_frame {
    enum class kind { incomplete, invalid, complete };
    kind found = kind::invalid;
    std::size_t end = 0;  ///< complete: the number of bytes of head and body.
    std::string body;
};
message_frame read_frame(std::string_view bytes);

/// Cuts the bytes into one piece, single bytes, or pieces of sizes that depend on `seed`.
std::vector<std::string_view> cut_whole(std::string_view bytes);
std::vector<std::string_view> cut_bytes(std::string_view bytes);
std::vector<std::string_view> cut_by_seed(std::string_view bytes, std::size_t seed);

}  // namespace fencegate::fuzz
