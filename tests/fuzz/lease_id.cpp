// lease_ids: the input as a lease_id, and the input as claims that somebody with the key has signed.
#include "fuzz.hpp"

#include <lockcore/encoding.hpp>
#include <lockcore/hmac_sha256.hpp>
#include <proto/lease_id.hpp>

#include <algorithm>
#include <span>
#include <string>

namespace fencegate::fuzz {
namespace {

using namespace lockcore;

/// Returns base64url(claims) "." base64url(MAC).
std::string sign_text(std::string_view claims, const authenticator& mac) {
    std::string id;
    append_base64url(id, std::as_bytes(std::span(claims)));
    const auto signature = mac.sign(id);
    id += '.';
    append_base64url(id, signature);
    return id;
}

void check_claims(const lease_claims& claims, cell_id cell, const authenticator& mac) {
    require(!claims.resources.empty(), "a lease covers at least one resource");
    const std::string id = sign_lease_id(claims, cell, mac);
    const auto read = verify_lease_id(id, cell, mac);
    require(id.size() > lease_id_max_bytes || (read && *read == claims), "signed claims are read as they were");
}

}  // namespace

void run_input(std::string_view input) {
    static const hmac_sha256 mac(std::string(32, 'k'));
    static const hmac_sha256 other(std::string(32, 'o'));
    for (const cell_id cell : {cell_id{0}, cell_id{1}}) {
        if (const auto claims = verify_lease_id(input, cell, mac)) check_claims(*claims, cell, mac);
    }

    std::string id = sign_text(input, mac);
    require(!verify_lease_id(id, 1, mac), "another cell's lease_id is refused");
    require(!verify_lease_id(id, 0, other), "another cluster's lease_id is refused");
    const auto claims = verify_lease_id(id, 0, mac);
    if (!claims) return;
    check_claims(*claims, 0, mac);
    check_claims(*claims, 65'535, mac);
    // A changed byte, its position chosen by the input.
    const std::size_t position = std::hash<std::string_view>()(input) % id.size();
    const char before = id[position];
    for (const char changed : {static_cast<char>(before ^ 1), static_cast<char>(before ^ 0x20), '.', '\0'}) {
        if (changed == before) continue;
        id[position] = changed;
        require(!verify_lease_id(id, 0, mac), "a lease_id with a changed byte is refused");
    }
}

}  // namespace fencegate::fuzz
