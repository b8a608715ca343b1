#include <gateway/http/routing/auth.hpp>

#include <lockcore/encoding.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <span>
#include <stdexcept>

namespace fencegate::http {
namespace {

std::array<unsigned char, 32> decode_hash(const api_key& key) {
    std::array<unsigned char, 32> out{};
    if (!lockcore::from_hex(key.key_sha256, std::as_writable_bytes(std::span(out))))
        throw std::invalid_argument("the key hash of " + key.principal + " is not 64 hexadecimal digits");
    return out;
}

std::array<unsigned char, 32> sha256(std::string_view text) {
    std::array<unsigned char, 32> out{};
    unsigned int size = 0;
    if (EVP_Digest(text.data(), text.size(), out.data(), &size, EVP_sha256(), nullptr) != 1) {
        throw std::runtime_error("OpenSSL has no SHA-256");
    }
    return out;
}

/// Returns the key of `Bearer KEY`; empty for another scheme.
std::string_view bearer_key(std::string_view authorization) {
    constexpr std::string_view scheme = "bearer ";
    if (authorization.size() < scheme.size()) return {};
    for (std::size_t i = 0; i < scheme.size(); ++i) {
        const char c = authorization[i];
        if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != scheme[i]) return {};
    }
    authorization.remove_prefix(scheme.size());
    while (!authorization.empty() && authorization.front() == ' ')
        authorization.remove_prefix(1);
    return authorization;
}

}  // namespace

authenticator::authenticator(const std::vector<api_key>& keys) : keyless_caller_{"dev", scope_set::all()} {
    for (const api_key& key : keys)
        entries_.push_back({decode_hash(key), {key.principal, scope_set(key.scopes)}});
}

result<const identity*> authenticator::identify(std::string_view authorization, std::string_view x_api_key) const {
    if (entries_.empty()) return &keyless_caller_;
    const std::string_view key = authorization.empty() ? x_api_key : bearer_key(authorization);
    if (key.empty())
        return make_failure(errc::unauthenticated, "Send an API key as 'Authorization: Bearer KEY' or in X-Api-Key.");
    const digest presented = sha256(key);
    const entry* found = nullptr;
    // Every entry is compared in full, so that the response time does not depend on the keys.
    for (const entry& e : entries_) {
        if (CRYPTO_memcmp(e.hash.data(), presented.data(), presented.size()) == 0) found = &e;
    }
    if (found == nullptr) return make_failure(errc::unauthenticated, "The API key is not known.");
    return &found->caller;
}

result<void> require_scope(scope_set granted, scope needed) {
    if (granted.has(needed)) return {};
    return make_failure(errc::forbidden, "This API key lacks the scope '" + std::string(to_string(needed)) + "'.");
}

std::string_view to_string(scope s) {
    switch (s) {
        case scope::leases:
            return "leases";
        case scope::writes:
            return "writes";
        case scope::history:
            return "history";
        case scope::operate:
            return "operate";
        case scope::bare_tokens:
            return "bare_tokens";
    }
    return "unknown";
}

}  // namespace fencegate::http
