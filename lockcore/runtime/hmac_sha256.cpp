#include <lockcore/hmac_sha256.hpp>

#include <lockcore/encoding.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>
#include <mutex>
#include <span>
#include <stdexcept>

namespace lockcore {
namespace {

authenticator::mac hmac_of(const std::string& key, std::string_view message) {
    authenticator::mac out{};
    unsigned length = 0;
    const auto* text = reinterpret_cast<const unsigned char*>(message.data());
    if (!HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text, message.size(),
              reinterpret_cast<unsigned char*>(out.data()), &length) ||
        length != authenticator::size) {
        throw std::runtime_error("HMAC-SHA256 failed");
    }
    return out;
}

void overwrite(std::vector<std::string>& keys) {
    for (std::string& key : keys)
        OPENSSL_cleanse(key.data(), key.size());
}

}  // namespace

hmac_sha256::hmac_sha256(std::string signing_key, std::vector<std::string> verification_keys) {
    set_keys(std::move(signing_key), std::move(verification_keys));
}

hmac_sha256::~hmac_sha256() {
    overwrite(keys_);
}

void hmac_sha256::set_keys(std::string signing_key, std::vector<std::string> verification_keys) {
    std::vector<std::string> keys = std::move(verification_keys);
    keys.insert(keys.begin(), std::move(signing_key));
    const bool complete = std::ranges::all_of(keys, [](const auto& key) { return key.size() >= key_bytes_min; });
    if (complete) {
        const std::unique_lock hold(mutex_);
        keys_.swap(keys);
    }
    overwrite(keys);
    if (!complete) throw std::invalid_argument("a key that signs leases needs at least 32 bytes");
}

authenticator::mac hmac_sha256::sign(std::string_view message) const {
    const std::shared_lock hold(mutex_);
    return hmac_of(keys_.front(), message);
}

bool hmac_sha256::verify(std::string_view message, const mac& signature) const {
    const std::shared_lock hold(mutex_);
    return std::ranges::any_of(
        keys_, [&](const auto& key) { return equal_in_constant_time(hmac_of(key, message), signature); });
}

std::vector<std::string> hmac_sha256::key_ids() const {
    const std::shared_lock hold(mutex_);
    std::vector<std::string> ids(keys_.size());
    std::ranges::transform(keys_, ids.begin(), id_of);
    return ids;
}

std::string hmac_sha256::id_of(std::string_view key) {
    std::array<unsigned char, SHA256_CBLOCK> pad{};
    static_assert(SHA256_CBLOCK >= SHA256_DIGEST_LENGTH);
    if (key.size() > pad.size())
        SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), pad.data());
    else
        std::ranges::copy(key, pad.begin());
    for (unsigned char& byte : pad)
        byte ^= 0x5c;
    std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
    SHA256(pad.data(), pad.size(), digest.data());
    OPENSSL_cleanse(pad.data(), pad.size());
    return "key-" + to_hex(std::as_bytes(std::span(digest).first(6)));
}

}  // namespace lockcore
