#include <gateway/http/identity/json_web_token.hpp>

#include <gateway/domain/exact_number.hpp>
#include <gateway/http/codec/header_values.hpp>
#include <gateway/http/codec/json_io.hpp>

#include <lockcore/encoding.hpp>
#include <lockcore/types.hpp>

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::http {
namespace {

namespace json = boost::json;
using std::chrono::system_clock;

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

template <class T>
using token_result = boost::system::result<T, token_fault>;

constexpr token_fault malformed_token{"The token is not a JSON Web Token of three parts in base64url."};
constexpr token_fault bad_header{"The token's header is not allowed."};
constexpr token_fault bad_prefixes{"The token's claim of prefixes is malformed."};
constexpr token_fault bad_exposed{"The token's claim of exposed names is malformed."};

struct token_parts {
    std::string_view header, payload, signature;
    std::string_view signed_text;  ///< Header and payload with the dot between them.
};

std::optional<token_parts> split_token(std::string_view token) {
    const auto first = token.find('.');
    const auto last = token.rfind('.');
    if (first == last || token.find('.', first + 1) != last) return std::nullopt;
    return token_parts{token.substr(0, first), token.substr(first + 1, last - first - 1), token.substr(last + 1),
                       token.substr(0, last)};
}

/// Decodes base64url. Out: empty also if the text is not the one that encoding the same bytes gives.
std::optional<std::string> decode_part(std::string_view part) {
    auto bytes = lockcore::from_base64url(part);
    if (!bytes || bytes->empty()) return std::nullopt;
    std::string canonical;
    lockcore::append_base64url(canonical, std::as_bytes(std::span(*bytes)));
    if (canonical != part) return std::nullopt;
    return bytes;
}

/// Parses an object; repeated members are refused.
std::optional<json::value> parse_object(std::string_view text) {
    auto parsed = parse_json(text);
    if (!parsed || !parsed->is_object()) return std::nullopt;
    return std::move(*parsed);
}

std::optional<std::string_view> text_of(const json::value* value) {
    if (value == nullptr || !is_json_string(*value)) return std::nullopt;
    return std::string_view(value->get_string().data(), value->get_string().size());
}

/// Returns the key of a token, by its header. Members that name or carry a key, and extensions that the verifier would
/// have to understand, are refused; so are tokens of another kind (RFC 8725, 3.11).
token_result<const token_key*> find_key(const json::object& header, const jwt_config& cfg, const token_key_set& keys) {
    for (const char* name : {"crit", "jwk", "jku", "x5u", "x5c", "b64", "zip"}) {
        if (header.contains(name)) return bad_header;
    }
    if (const auto* type = header.if_contains("typ")) {
        const std::string_view name = text_of(type).value_or("");
        if (!equals_ignoring_case(name, "JWT") && !equals_ignoring_case(name, "at+jwt") &&
            !equals_ignoring_case(name, "application/at+jwt"))
            return bad_header;
    }
    const auto algorithm = text_of(header.if_contains("alg"));
    const auto allowed =
        std::ranges::find_if(cfg.algorithms, [&](token_algorithm each) { return to_string(each) == algorithm; });
    if (allowed == cfg.algorithms.end()) return token_fault{"The token's algorithm is not allowed."};
    const auto id = text_of(header.if_contains("kid"));
    if (!id || !token_key_set::is_key_id(*id)) return token_fault{"The token's header has no valid kid."};
    const token_key* key = keys.find(*id);
    if (key == nullptr)
        return token_fault{.detail = "The token is signed with a key that the gateway does not know.",
                           .unknown_key = true};
    if (key->algorithm != *allowed) return token_fault{"The token's algorithm is not that of its key."};
    return key;
}

/// Returns a NumericDate (RFC 7519, 2); a time after the year 2199 becomes its end, because the clock ends in 2262.
std::optional<system_clock::time_point> time_of(const json::value& value) {
    double seconds = -1;
    if (const auto* whole = value.if_int64()) seconds = static_cast<double>(*whole);
    if (const auto* large = value.if_uint64()) seconds = static_cast<double>(*large);
    if (const auto digits = exact_digits(value)) {
        const auto [end, error] = std::from_chars(digits->data(), digits->data() + digits->size(), seconds);
        if (error != std::errc{} || end != digits->data() + digits->size()) return std::nullopt;
    }
    constexpr double seconds_max = 7'258'118'400;
    if (!(seconds >= 0)) return std::nullopt;
    const double bounded = std::min(seconds, seconds_max);
    return system_clock::time_point(std::chrono::milliseconds(static_cast<std::int64_t>(bounded * 1'000)));
}

/// Checks issuer, audience and times. Out: when the token ends, the clock skew included.
token_result<system_clock::time_point> check_claims(const json::object& claims, const jwt_config& cfg,
                                                    system_clock::time_point now) {
    if (text_of(claims.if_contains("iss")) != cfg.issuer) return token_fault{"The token is of another issuer."};
    const auto is_audience = [&](const json::value& value) {
        const auto name = text_of(&value);
        return name && std::ranges::find(cfg.audiences, *name) != cfg.audiences.end();
    };
    const auto* audience = claims.if_contains("aud");
    const auto* audiences = audience == nullptr ? nullptr : audience->if_array();
    if (audience == nullptr ||
        !(audiences != nullptr ? std::ranges::any_of(*audiences, is_audience) : is_audience(*audience)))
        return token_fault{"The token is for another audience."};
    const auto* expiry = claims.if_contains("exp");
    const auto ends = expiry == nullptr ? std::nullopt : time_of(*expiry);
    if (!ends) return token_fault{"The token has no valid exp."};
    if (now >= *ends + cfg.clock_skew) return token_fault{"The token has expired."};
    if (const auto* not_before = claims.if_contains("nbf")) {
        const auto begins = time_of(*not_before);
        if (!begins || now + cfg.clock_skew < *begins) return token_fault{"The token is not valid yet."};
    }
    return *ends + cfg.clock_skew;
}

/// Returns the names in a text, separated by spaces, or in an array of texts.
std::optional<std::vector<std::string_view>> names_of(const json::value& value) {
    std::vector<std::string_view> out;
    if (const auto* items = value.if_array()) {
        for (const auto& item : *items) {
            const auto name = text_of(&item);
            if (!name) return std::nullopt;
            out.push_back(*name);
        }
        return out;
    }
    auto text = text_of(&value);
    if (!text) return std::nullopt;
    while (!text->empty()) {
        const auto end = std::min(text->find(' '), text->size());
        if (end > 0) out.push_back(text->substr(0, end));
        text->remove_prefix(std::min(end + 1, text->size()));
    }
    return out;
}

std::optional<scope> scope_of(std::string_view name) {
    for (const scope each : {scope::leases, scope::writes, scope::history, scope::operate, scope::bare_tokens}) {
        if (to_string(each) == name) return each;
    }
    return std::nullopt;
}

/// Reads `[{resource_prefix, scopes}, …]`. Out: empty if a part of it is malformed or unknown, because rights without
/// that part might be wider.
std::optional<std::vector<prefix_scopes>> prefixes_of(const json::value& value) {
    const auto* items = value.if_array();
    if (items == nullptr || items->size() > prefixes_max) return std::nullopt;
    std::vector<prefix_scopes> out;
    for (const auto& item : *items) {
        const auto* entry = item.if_object();
        if (entry == nullptr || entry->size() != 2) return std::nullopt;
        const auto prefix = text_of(entry->if_contains("resource_prefix"));
        const auto* scopes = entry->if_contains("scopes");
        const auto names = scopes == nullptr ? std::nullopt : names_of(*scopes);
        if (!prefix || prefix->empty() || !lockcore::resource_name::is_prefix(*prefix) || !names) return std::nullopt;
        prefix_scopes read{std::string(*prefix), {}};
        for (const std::string_view name : *names) {
            const auto known = scope_of(name);
            if (!known) return std::nullopt;
            read.scopes.insert(*known);
        }
        if (std::ranges::find(out, read.resource_prefix, &prefix_scopes::resource_prefix) != out.end())
            return std::nullopt;
        out.push_back(std::move(read));
    }
    return out;
}

/// Returns the claim that a JSON pointer names; null if the pointer is empty or the token has no such claim.
const json::value* find_claim(const json::value& claims, const std::string& pointer) {
    json::error_code ec;
    return pointer.empty() ? nullptr : claims.find_pointer({pointer.data(), pointer.size()}, ec);
}

/// Returns whether a claim lies inside a value that is no object, so that whether it narrows the rights is not known.
bool is_unreachable(const json::value& claims, const std::string& pointer) {
    json::error_code ec;
    return !pointer.empty() && claims.find_pointer({pointer.data(), pointer.size()}, ec) == nullptr &&
           ec != json::error::not_found;
}

token_result<rights_config> rights_of(const json::value& claims, const jwt_config& cfg) {
    rights_config out;
    for (const auto* pointer : {&cfg.scopes_claim, &cfg.prefixes_claim, &cfg.exposed_claim, &cfg.database_role_claim}) {
        if (is_unreachable(claims, *pointer)) return token_fault{"A claim of the token that has others is no object."};
    }
    if (const auto* scopes = find_claim(claims, cfg.scopes_claim)) {
        const auto names = names_of(*scopes);
        if (!names) return token_fault{"The token's claim of scopes is malformed."};
        for (const std::string_view name : *names) {
            // An issuer has scopes of other services too.
            if (const auto known = scope_of(name)) out.scopes.insert(*known);
        }
    }
    if (const auto* prefixes = find_claim(claims, cfg.prefixes_claim)) {
        auto read = prefixes_of(*prefixes);
        if (!read) return bad_prefixes;
        out.prefixes = std::move(*read);
    }
    if (const auto* exposed = find_claim(claims, cfg.exposed_claim)) {
        const auto names = names_of(*exposed);
        if (!names || names->size() > exposed_max) return bad_exposed;
        auto& listed = out.exposed.emplace();
        for (const std::string_view name : *names) {
            if (!is_plain_name(name, exposed_name_bytes_max)) return bad_exposed;
            listed.emplace(name);
        }
    }
    if (const auto* role = find_claim(claims, cfg.database_role_claim)) {
        const auto name = text_of(role);
        if (!name || !is_plain_name(*name, database_role_bytes_max) || *name == no_database_role)
            return token_fault{"The token's claim of the database role is malformed."};
        out.database_role = *name;
    }
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

std::string credential_of(const token_key& key) {
    return "kid:" + key.id + " " + key.fingerprint;
}

token_result<identity> verify_token(std::string_view token, const jwt_config& cfg, const token_key_set& keys,
                                    system_clock::time_point now) {
    if (token.size() > token_bytes_max) return token_fault{"The token is longer than 8 KiB."};
    const auto parts = split_token(token);
    if (!parts) return malformed_token;
    const auto header_text = decode_part(parts->header);
    const auto header = header_text ? parse_object(*header_text) : std::nullopt;
    const auto signature = decode_part(parts->signature);
    if (!header || !signature) return malformed_token;
    const auto key = find_key(header->get_object(), cfg, keys);
    if (!key) return key.error();
    if (!verify_signature(**key, parts->signed_text, *signature))
        return token_fault{"The token's signature is not valid."};

    auto text = decode_part(parts->payload);
    const auto claims = text ? parse_object(*text) : std::nullopt;
    if (!claims) return malformed_token;
    const auto valid_until = check_claims(claims->get_object(), cfg, now);
    if (!valid_until) return valid_until.error();
    const auto principal = text_of(find_claim(*claims, cfg.principal_claim));
    if (!principal || !is_plain_name(*principal, principal_bytes_max))
        return token_fault{"The token names no valid principal."};
    const auto granted = rights_of(*claims, cfg);
    if (!granted) return granted.error();
    return identity{std::string(*principal), rights(*granted, *valid_until, std::move(*text)), credential_of(**key),
                    "token:" + (*key)->id};
}

}  // namespace fencegate::http
