#include <gateway/config/secrets.hpp>
#include <gateway/config/token_keys.hpp>

#include <lockcore/encoding.hpp>

#include <boost/json/parse.hpp>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <utility>

namespace fencegate {
namespace {

namespace json = boost::json;

constexpr int rsa_bits_min = 2048;
/// A longer key makes each verification slow.
constexpr int rsa_bits_max = 8192;
constexpr std::size_t coordinate_bytes = 32;

using key_ptr = std::shared_ptr<EVP_PKEY>;

template <auto Free>
struct freeing {
    template <class T>
    void operator()(T* p) const {
        Free(p);
    }
};
using number_ptr = std::unique_ptr<BIGNUM, freeing<BN_free>>;
using builder_ptr = std::unique_ptr<OSSL_PARAM_BLD, freeing<OSSL_PARAM_BLD_free>>;
using params_ptr = std::unique_ptr<OSSL_PARAM, freeing<OSSL_PARAM_free>>;
using context_ptr = std::unique_ptr<EVP_PKEY_CTX, freeing<EVP_PKEY_CTX_free>>;

const unsigned char* bytes_of(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

std::string_view text_of(const json::object& key, std::string_view name) {
    const auto* value = key.if_contains({name.data(), name.size()});
    if (value == nullptr || !value->is_string()) return {};
    return {value->get_string().data(), value->get_string().size()};
}

/// Returns the bytes of a base64url member; empty if it is missing or malformed.
std::string binary_of(const json::object& key, std::string_view name) {
    return lockcore::from_base64url(text_of(key, name)).value_or("");
}

key_ptr own(EVP_PKEY* key) {
    ERR_clear_error();
    return key == nullptr ? nullptr : key_ptr(key, EVP_PKEY_free);
}

/// Makes a key of a type from its parameters. Out: null if they are not valid.
key_ptr make_key(const char* type, const OSSL_PARAM_BLD* parts) {
    const params_ptr params(OSSL_PARAM_BLD_to_param(const_cast<OSSL_PARAM_BLD*>(parts)));
    const context_ptr context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
    EVP_PKEY* made = nullptr;
    if (!params || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
        EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_PUBLIC_KEY, params.get()) != 1)
        return own(nullptr);
    return own(made);
}

key_ptr make_rsa_key(const std::string& modulus, const std::string& exponent) {
    const number_ptr n(BN_bin2bn(bytes_of(modulus), static_cast<int>(modulus.size()), nullptr));
    const number_ptr e(BN_bin2bn(bytes_of(exponent), static_cast<int>(exponent.size()), nullptr));
    const builder_ptr parts(OSSL_PARAM_BLD_new());
    if (!n || !e || !parts || BN_is_odd(n.get()) == 0 || BN_is_odd(e.get()) == 0 || BN_is_one(e.get()) == 1)
        return nullptr;
    OSSL_PARAM_BLD_push_BN(parts.get(), OSSL_PKEY_PARAM_RSA_N, n.get());
    OSSL_PARAM_BLD_push_BN(parts.get(), OSSL_PKEY_PARAM_RSA_E, e.get());
    return make_key("RSA", parts.get());
}

key_ptr make_p256_key(const std::string& x, const std::string& y) {
    const std::string point = '\x04' + x + y;
    const builder_ptr parts(OSSL_PARAM_BLD_new());
    if (!parts || x.size() != coordinate_bytes || y.size() != coordinate_bytes) return nullptr;
    OSSL_PARAM_BLD_push_utf8_string(parts.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0);
    OSSL_PARAM_BLD_push_octet_string(parts.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size());
    key_ptr key = make_key("EC", parts.get());
    if (!key) return nullptr;
    const context_ptr context(EVP_PKEY_CTX_new_from_pkey(nullptr, key.get(), nullptr));
    const bool on_curve = context && EVP_PKEY_public_check(context.get()) == 1;
    ERR_clear_error();
    return on_curve ? key : nullptr;
}

key_ptr make_ed25519_key(const std::string& x) {
    return own(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes_of(x), x.size()));
}

/// Returns whether a key is one that verifies signatures of an algorithm, by its `use`, `key_ops` and `alg`.
bool verifies_by(const json::object& key, token_algorithm algorithm) {
    const auto* operations = key.if_contains("key_ops");
    if (operations != nullptr) {
        const auto* names = operations->if_array();
        if (names == nullptr || std::ranges::find(*names, json::value("verify")) == names->end()) return false;
    }
    return (!key.contains("use") || text_of(key, "use") == "sig") &&
           (!key.contains("alg") || text_of(key, "alg") == to_string(algorithm));
}

std::optional<token_algorithm> algorithm_of(const json::object& key) {
    const std::string_view type = text_of(key, "kty");
    const std::string_view curve = text_of(key, "crv");
    std::optional<token_algorithm> found;
    if (type == "RSA") found = token_algorithm::rs256;
    if (type == "EC" && curve == "P-256") found = token_algorithm::es256;
    if (type == "OKP" && curve == "Ed25519") found = token_algorithm::eddsa;
    if (!found || !verifies_by(key, *found)) return std::nullopt;
    return found;
}

key_ptr read_public_key(const json::object& key, token_algorithm algorithm) {
    switch (algorithm) {
        case token_algorithm::rs256:
            return make_rsa_key(binary_of(key, "n"), binary_of(key, "e"));
        case token_algorithm::es256:
            return make_p256_key(binary_of(key, "x"), binary_of(key, "y"));
        case token_algorithm::eddsa:
            return make_ed25519_key(binary_of(key, "x"));
    }
    return nullptr;
}

std::string fingerprint_of(const EVP_PKEY* key) {
    std::string der(static_cast<std::size_t>(std::max(i2d_PUBKEY(key, nullptr), 0)), '\0');
    auto* end = reinterpret_cast<unsigned char*>(der.data());
    i2d_PUBKEY(key, &end);
    return sha256_hex(der);
}

/// Returns what is wrong with a key; empty if it can be used.
std::string fault_of(const json::object& given, const token_key& key) {
    if (!token_key_set::is_key_id(key.id))
        return "has no kid of 1 to " + std::to_string(token_key_set::id_bytes_max) +
               " visible ASCII characters, without backslashes and successive dots";
    if (given.contains("d")) return "is a private key; give only the public one";
    if (!key.public_key) return "is not a valid " + std::string(text_of(given, "kty")) + " key";
    const int bits = EVP_PKEY_get_bits(key.public_key.get());
    if (key.algorithm == token_algorithm::rs256 && (bits < rsa_bits_min || bits > rsa_bits_max))
        return "is an RSA key of " + std::to_string(bits) + " bits; it has to have 2048 to 8192";
    return {};
}

}  // namespace

std::string_view to_string(token_algorithm algorithm) {
    constexpr std::array<std::string_view, 3> names{"RS256", "ES256", "EdDSA"};
    return names.at(static_cast<std::size_t>(algorithm));
}

bool operator==(const token_key& a, const token_key& b) {
    return a.id == b.id && a.algorithm == b.algorithm && EVP_PKEY_eq(a.public_key.get(), b.public_key.get()) == 1;
}

std::optional<token_key_set> token_key_set::parse(std::string_view text, std::vector<std::string>& faults) {
    const auto refuse = [&](std::string fault) {
        faults.push_back(std::move(fault));
        return std::nullopt;
    };
    if (text.size() > text_bytes_max) return refuse("is longer than " + std::to_string(text_bytes_max) + " bytes");
    json::error_code ec;
    const json::value document = json::parse({text.data(), text.size()}, ec);
    const json::object* object = ec ? nullptr : document.if_object();
    const json::value* member = object == nullptr ? nullptr : object->if_contains("keys");
    const json::array* given = member == nullptr ? nullptr : member->if_array();
    if (given == nullptr) return refuse("is not a JSON Web Key Set: an object with an array `keys`");
    if (given->size() > keys_max) return refuse("has more than " + std::to_string(keys_max) + " keys");
    token_key_set out;
    for (std::size_t i = 0; i < given->size(); ++i) {
        const std::string at = "keys[" + std::to_string(i) + "] ";
        const json::object* key = (*given)[i].if_object();
        if (key == nullptr) {
            faults.push_back(at + "is not an object");
            continue;
        }
        const auto algorithm = algorithm_of(*key);
        if (!algorithm) continue;
        token_key read{std::string(text_of(*key, "kid")), *algorithm, read_public_key(*key, *algorithm), {}};
        std::string fault = fault_of(*key, read);
        if (fault.empty() && out.find(read.id) != nullptr) fault = "has the kid of another key";
        if (fault.empty()) {
            read.fingerprint = fingerprint_of(read.public_key.get());
            out.keys_.push_back(std::move(read));
        } else {
            faults.push_back(at + fault);
        }
    }
    if (out.keys_.empty()) faults.emplace_back("has no key for RS256, ES256 or EdDSA that can be used");
    return out;
}

bool token_key_set::is_key_id(std::string_view id) {
    return !id.empty() && id.size() <= id_bytes_max && id.find("..") == std::string_view::npos &&
           std::ranges::all_of(id, [](char c) { return c > ' ' && c <= '~' && c != '\\'; });
}

const token_key* token_key_set::find(std::string_view id) const {
    const auto found = std::ranges::find(keys_, id, &token_key::id);
    return found == keys_.end() ? nullptr : &*found;
}

}  // namespace fencegate
