#include <gateway/http/identity/token_authenticator.hpp>

#include <openssl/sha.h>

#include <utility>

namespace fencegate::http {
namespace {

/// A verification takes about 0.1 ms, so that tokens beyond these only take a little more time.
constexpr std::size_t cached_tokens_max = 2'000;

}  // namespace

token_authenticator::token_authenticator(const jwt_config& cfg) : cfg_(cfg), source_(cfg), cache_(cached_tokens_max) {}

boost::system::result<std::shared_ptr<const identity>, token_fault> token_authenticator::identify(
    std::string_view token, std::chrono::system_clock::time_point now) {
    const auto keys = source_.keys();
    token_cache::digest digest{};
    if (token.size() <= token_bytes_max) {
        SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
        if (auto cached = cache_.find(digest, keys, now)) return cached;
    }
    auto verified = verify_token(token, cfg_, *keys, now);
    if (!verified) {
        if (verified.error().unknown_key) source_.request_for_unknown_key();
        return verified.error();
    }
    auto caller = std::make_shared<const identity>(std::move(*verified));
    cache_.insert(digest, keys, caller);
    return caller;
}

}  // namespace fencegate::http
