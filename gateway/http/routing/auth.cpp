#include <gateway/http/codec/header_values.hpp>
#include <gateway/http/identity/token_authenticator.hpp>
#include <gateway/http/routing/auth.hpp>

#include <lockcore/encoding.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>

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

constexpr const char* missing_credential =
    "Send an API key as 'Authorization: Bearer KEY' or in X-Api-Key, or a token as 'Authorization: Bearer TOKEN'.";

authentication_failure refused(std::string detail) {
    return {make_failure(errc::unauthenticated, std::move(detail))};
}

}  // namespace

std::string_view bearer_of(std::string_view authorization) {
    constexpr std::string_view scheme = "bearer ";
    if (!equals_ignoring_case(authorization.substr(0, scheme.size()), scheme)) return {};
    authorization.remove_prefix(scheme.size());
    while (!authorization.empty() && authorization.front() == ' ')
        authorization.remove_prefix(1);
    return authorization;
}

authenticator::authenticator(const auth_config& cfg, const authenticator* replaced)
    : jwt_(cfg.jwt), certificates_(cfg.client_certificates) {
    if (cfg.is_keyless()) keyless_caller_ = std::make_shared<const identity>(identity{"dev", rights::all()});
    if (replaced != nullptr) {
        const bool same_rules = jwt_ && replaced->jwt_ && verify_alike(*jwt_, *replaced->jwt_);
        token_rules_version_ = replaced->token_rules_version_ + (same_rules ? 0 : 1);
    }
    if (replaced != nullptr && replaced->jwt_ == jwt_) {
        tokens_ = replaced->tokens_;
    } else if (jwt_) {
        const auto* earlier = replaced == nullptr ? nullptr : replaced->tokens_.get();
        tokens_ = std::make_shared<token_authenticator>(*jwt_, token_rules_version_, earlier);
        if (replaced != nullptr) token_source_fault_ = tokens_->source_fault();
    }
    for (const api_key& key : cfg.api_keys) {
        auto caller = std::make_shared<const identity>(
            make_identity(key.principal, key.rights, key.key_sha256, name_of_key(key.key_sha256)));
        entries_.push_back({decode_hash(key), std::move(caller)});
    }
}

authenticator::~authenticator() = default;

bool authenticator::accepts(const identity& caller) const {
    if (keyless_caller_) return true;
    if (tokens_ && tokens_->accepts(caller)) return true;
    const auto gives_caller = [&caller](const entry& e) {
        return e.caller->credential == caller.credential && e.caller->principal == caller.principal;
    };
    return std::ranges::any_of(entries_, gives_caller) || certificates_.has(caller);
}

std::shared_ptr<const token_key_set> authenticator::token_keys() const {
    return tokens_ ? tokens_->keys() : nullptr;
}

authenticator::caller_result authenticator::identify(std::string_view authorization, std::string_view x_api_key,
                                                     const client_certificate* certificate,
                                                     std::chrono::system_clock::time_point now) const {
    if (keyless_caller_) return keyless_caller_;
    if (authorization.empty() && x_api_key.empty()) {
        if (certificate == nullptr) return refused(missing_credential);
        if (now >= certificate->valid_until) return refused("The client certificate has expired.");
        auto caller = certificates_.find(*certificate);
        if (!caller) return refused("The client certificate belongs to no principal (auth.client_certificates).");
        return caller;
    }
    if (authorization.empty()) return identify_key(x_api_key);
    auto caller = identify_bearer(bearer_of(authorization), now);
    if (!caller || x_api_key.empty()) return caller;
    const auto other = identify_key(x_api_key);
    if (!other) return other;
    if ((*other)->principal != (*caller)->principal) return refused("The request has credentials of two principals.");
    return caller;
}

authenticator::caller_result authenticator::identify_bearer(std::string_view bearer,
                                                            std::chrono::system_clock::time_point now) const {
    if (!tokens_ || std::ranges::count(bearer, '.') != 2) return identify_key(bearer);
    auto caller = tokens_->identify(bearer, now);
    if (!caller) {
        authentication_failure out = refused(std::string(caller.error().detail));
        out.invalid_token = true;
        out.keys_outdated = caller.error().unknown_key && !jwt_->keys;
        return out;
    }
    return std::move(*caller);
}

authenticator::caller_result authenticator::identify_key(std::string_view key) const {
    if (key.empty()) return refused(missing_credential);
    const digest presented = sha256(key);
    const entry* found = nullptr;
    // Every entry is compared in full, so that the response time does not depend on the keys.
    for (const entry& e : entries_) {
        if (CRYPTO_memcmp(e.hash.data(), presented.data(), presented.size()) == 0) found = &e;
    }
    if (found == nullptr) return refused("The API key is not known.");
    return found->caller;
}

}  // namespace fencegate::http
