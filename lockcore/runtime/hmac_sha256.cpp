#include <lockcore/hmac_sha256.hpp>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <stdexcept>

namespace lockcore {

hmac_sha256::hmac_sha256(std::string key) : key_(std::move(key)) {
    if (key_.size() < key_bytes_min) throw std::invalid_argument("the key that signs leases needs at least 32 bytes");
}

std::array<std::byte, authenticator::size> hmac_sha256::sign(std::string_view message) const {
    std::array<std::byte, size> out{};
    unsigned length = 0;
    const auto* text = reinterpret_cast<const unsigned char*>(message.data());
    if (!HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), text, message.size(),
              reinterpret_cast<unsigned char*>(out.data()), &length) ||
        length != size) {
        throw std::runtime_error("HMAC-SHA256 failed");
    }
    return out;
}

}  // namespace lockcore
