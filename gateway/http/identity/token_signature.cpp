#include <gateway/http/identity/token_signature.hpp>

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include <memory>
#include <string>

namespace fencegate::http {
namespace {

constexpr std::size_t number_bytes = 32;

const unsigned char* bytes_of(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

/// Returns an ECDSA signature in DER, as OpenSSL takes it; empty unless `raw` is r and s, 32 bytes each.
std::string to_der(std::string_view raw) {
    if (raw.size() != 2 * number_bytes) return {};
    const std::unique_ptr<ECDSA_SIG, decltype(&ECDSA_SIG_free)> numbers(ECDSA_SIG_new(), ECDSA_SIG_free);
    BIGNUM* r = BN_bin2bn(bytes_of(raw), number_bytes, nullptr);
    BIGNUM* s = BN_bin2bn(bytes_of(raw) + number_bytes, number_bytes, nullptr);
    if (!numbers || ECDSA_SIG_set0(numbers.get(), r, s) != 1) {
        BN_free(r);
        BN_free(s);
        return {};
    }
    std::string out(static_cast<std::size_t>(i2d_ECDSA_SIG(numbers.get(), nullptr)), '\0');
    auto* end = reinterpret_cast<unsigned char*>(out.data());
    i2d_ECDSA_SIG(numbers.get(), &end);
    return out;
}

}  // namespace

bool verify_signature(const token_key& key, std::string_view text, std::string_view signature) {
    const bool is_ecdsa = key.algorithm == token_algorithm::es256;
    const std::string der = is_ecdsa ? to_der(signature) : std::string();
    if (is_ecdsa) signature = der;
    if (signature.empty()) return false;
    // Ed25519 hashes the text itself.
    const EVP_MD* hash = key.algorithm == token_algorithm::eddsa ? nullptr : EVP_sha256();
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    const bool verified =
        context && EVP_DigestVerifyInit(context.get(), nullptr, hash, nullptr, key.public_key.get()) == 1 &&
        EVP_DigestVerify(context.get(), bytes_of(signature), signature.size(), bytes_of(text), text.size()) == 1;
    ERR_clear_error();
    return verified;
}

}  // namespace fencegate::http
