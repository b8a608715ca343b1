#include "token_issuer.hpp"

#include <lockcore/encoding.hpp>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include <map>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace fencegate {
namespace {

using kind = token_issuer::kind;

EVP_PKEY* generate(kind k) {
    switch (k) {
        case kind::rsa_2048:
            return EVP_RSA_gen(2048);
        case kind::rsa_1024:
            return EVP_RSA_gen(1024);
        case kind::p256:
            return EVP_EC_gen("P-256");
        case kind::p384:
            return EVP_EC_gen("P-384");
        case kind::ed25519:
            return EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
    }
    return nullptr;
}

std::string number(EVP_PKEY* key, const char* name) {
    BIGNUM* n = nullptr;
    EVP_PKEY_get_bn_param(key, name, &n);
    std::string out(static_cast<std::size_t>(BN_num_bytes(n)), '\0');
    BN_bn2bin(n, reinterpret_cast<unsigned char*>(out.data()));
    BN_free(n);
    return base64url(out);
}

std::string octets(EVP_PKEY* key) {
    std::string out(256, '\0');
    std::size_t size = 0;
    EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, reinterpret_cast<unsigned char*>(out.data()),
                                    out.size(), &size);
    out.resize(size);
    return out;
}

std::string member(const char* name, const std::string& value) {
    return std::string(",\"") + name + "\":\"" + value + '"';
}

}  // namespace

std::string base64url(std::string_view bytes) {
    std::string out;
    lockcore::append_base64url(out, std::as_bytes(std::span(bytes)));
    return out;
}

token_issuer::token_issuer(kind k, std::string id) : kind_(k), id_(std::move(id)) {
    static std::map<std::pair<kind, std::string>, std::shared_ptr<EVP_PKEY>> made;
    auto& key = made[{k, id_}];
    if (!key) key.reset(generate(k), EVP_PKEY_free);
    key_ = key;
}

std::string token_issuer::jwk(const std::string& more) const {
    EVP_PKEY* key = key_.get();
    std::string out = "{\"kid\":\"" + id_ + '"';
    if (kind_ == kind::ed25519) {
        out += member("kty", "OKP") + member("crv", "Ed25519") + member("x", base64url(octets(key)));
    } else if (kind_ == kind::p256 || kind_ == kind::p384) {
        const std::string point = octets(key);
        const std::size_t half = (point.size() - 1) / 2;
        out += member("kty", "EC") + member("crv", kind_ == kind::p256 ? "P-256" : "P-384");
        out += member("x", base64url(point.substr(1, half))) + member("y", base64url(point.substr(1 + half)));
    } else {
        out += member("kty", "RSA") + member("n", number(key, OSSL_PKEY_PARAM_RSA_N));
        out += member("e", number(key, OSSL_PKEY_PARAM_RSA_E));
    }
    return out + more + "}";
}

token_key_set token_issuer::key_set() const {
    std::vector<std::string> faults;
    auto keys = token_key_set::parse("{\"keys\":[" + jwk() + "]}", faults);
    if (!keys) throw std::runtime_error(faults.back());
    return std::move(*keys);
}

std::string token_issuer::sign(std::string_view text) const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    EVP_DigestSignInit(context.get(), nullptr, kind_ == kind::ed25519 ? nullptr : EVP_sha256(), nullptr, key_.get());
    std::string out(1024, '\0');
    std::size_t size = out.size();
    EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()), &size,
                   reinterpret_cast<const unsigned char*>(text.data()), text.size());
    out.resize(size);
    if (kind_ != kind::p256) return out;
    const auto* der = reinterpret_cast<const unsigned char*>(out.data());
    const std::unique_ptr<ECDSA_SIG, decltype(&ECDSA_SIG_free)> numbers(
        d2i_ECDSA_SIG(nullptr, &der, static_cast<long>(out.size())), ECDSA_SIG_free);
    std::string raw(64, '\0');
    auto* bytes = reinterpret_cast<unsigned char*>(raw.data());
    BN_bn2binpad(ECDSA_SIG_get0_r(numbers.get()), bytes, 32);
    BN_bn2binpad(ECDSA_SIG_get0_s(numbers.get()), bytes + 32, 32);
    return raw;
}

std::string token_issuer::token(std::string_view header, std::string_view payload) const {
    const std::string text = base64url(header) + '.' + base64url(payload);
    return text + '.' + base64url(sign(text));
}

std::string token_issuer::token(std::string_view payload) const {
    const std::string algorithm = kind_ == kind::ed25519 ? "EdDSA" : kind_ == kind::p256 ? "ES256" : "RS256";
    return token("{\"typ\":\"JWT\",\"alg\":\"" + algorithm + "\",\"kid\":\"" + id_ + "\"}", payload);
}

}  // namespace fencegate
