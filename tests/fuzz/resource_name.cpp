// Names of resources, nonces and ids of holds.
#include "fuzz.hpp"

#include <lockcore/encoding.hpp>
#include <lockcore/types.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <string>

namespace fencegate::fuzz {
namespace {

/// Returns whether a text is a name, by the words of docs/http-api.md and not by the code of the product.
bool is_name(std::string_view text) {
    constexpr std::string_view allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@/-";
    const bool has_only_allowed = text.find_first_not_of(allowed) == std::string_view::npos;
    bool has_empty_segment = false;
    for (std::string_view rest = text; !rest.empty();)
        has_empty_segment = take_until(rest, '/').empty() || has_empty_segment;
    return !text.empty() && text.size() <= 200 && has_only_allowed && !has_empty_segment && text.back() != '/';
}

template <class Id>
void check_id(std::string_view text) {
    const auto id = Id::parse(text);
    const bool digits = text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    require(id.has_value() == (text.size() == Id::size && digits),
            "an id is a fixed number of lower-case hexadecimal digits");
    if (id) require(id->str() == text, "an id keeps its text");
}

void check_encodings(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    const std::string hex = lockcore::to_hex(bytes);
    std::string decoded(text.size(), '\0');
    require(lockcore::from_hex(hex, std::as_writable_bytes(std::span(decoded))) && decoded == text,
            "hexadecimal text is decoded to what was encoded");
    std::string base64;
    lockcore::append_base64url(base64, bytes);
    require(lockcore::from_base64url(base64) == text, "base64url is decoded to what was encoded");
    if (const auto other = lockcore::from_base64url(text))
        require(other->size() <= text.size(), "decoded base64url is not longer than its text");
}

}  // namespace

void run_input(std::string_view input) {
    const auto name = lockcore::resource_name::parse(input);
    require(name.has_value() == is_name(input), "exactly the documented names are accepted");
    if (name) {
        require(name->str() == input, "a name keeps its text");
        require(name->bucket() < lockcore::buckets, "a name has one of the counters of a node");
    } else {
        require(!name.error().detail.empty(), "the failure says which rule is broken");
    }
    check_id<lockcore::nonce>(input);
    check_id<lockcore::hold_id>(input);
    check_encodings(input);
}

}  // namespace fencegate::fuzz
