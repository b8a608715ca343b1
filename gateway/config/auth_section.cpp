#include <gateway/config/authority.hpp>
#include <gateway/config/secrets.hpp>
#include <gateway/config/sections.hpp>

#include <lockcore/encoding.hpp>
#include <lockcore/types.hpp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

namespace fencegate {
namespace {

using namespace config_reader;

constexpr std::size_t api_key_min_bytes = 16;
/// Maximum number of API keys, and of client certificates.
constexpr std::size_t credentials_max = 10'000;
constexpr std::size_t audiences_max = 100;
constexpr std::size_t claim_pointer_bytes_max = 200;
constexpr std::size_t certificate_name_bytes_max = 1'024;

std::vector<named_value<std::optional<scope>>> scope_names() {
    return {{"leases", scope::leases},
            {"writes", scope::writes},
            {"history", scope::history},
            {"operate", scope::operate},
            {"bare_tokens", scope::bare_tokens}};
}

read_value scope_list(std::set<scope>& target) {
    return list([&target](std::size_t, const YAML::Node& node, const std::string& path, fault_list& faults) {
        std::optional<scope> value;
        choice<std::optional<scope>>(value, scope_names())(node, path, faults);
        if (value) target.insert(*value);
    });
}

/// Reads a name into `target`; a name is at most `bytes_max` bytes without control characters.
read_value plain_name(std::string& target, std::size_t bytes_max) {
    return [&target, bytes_max](const YAML::Node& node, const std::string& path, fault_list& faults) {
        if (!read_scalar(node, path, faults, target)) return;
        if (!is_plain_name(target, bytes_max))
            faults.add(path, "must be at most " + std::to_string(bytes_max) + " bytes without control characters");
    };
}

void read_prefix(const YAML::Node& node, const std::string& path, fault_list& faults,
                 std::vector<prefix_scopes>& prefixes) {
    prefix_scopes read;
    mapping({{"resource_prefix", text(read.resource_prefix), true}, {"scopes", scope_list(read.scopes), true}})(
        node, path, faults);
    const std::string name_path = path + ".resource_prefix";
    if (faults.covers(name_path)) return;
    if (!lockcore::resource_name::is_prefix(read.resource_prefix)) {
        faults.add(name_path, "is not the beginning of a resource's name");
    } else if (std::ranges::find(prefixes, read.resource_prefix, &prefix_scopes::resource_prefix) != prefixes.end()) {
        faults.add(name_path, "is given more than once");
    }
    prefixes.push_back(std::move(read));
}

/// Returns a reader for a list of entries, at most `entries_max`; the fault has the path of the list.
template <class Item>
read_value bounded_list(std::size_t entries_max, Item item) {
    return [entries_max, item](const YAML::Node& node, const std::string& path, fault_list& faults) {
        if (node.IsSequence() && node.size() > entries_max)
            return faults.add(path, "has more than " + std::to_string(entries_max) + " entries");
        list(item)(node, path, faults);
    };
}

read_value prefix_list(std::vector<prefix_scopes>& target) {
    return bounded_list(prefixes_max, [&target](std::size_t, const YAML::Node& node, const std::string& path,
                                                fault_list& faults) { read_prefix(node, path, faults, target); });
}

read_value exposed_list(std::optional<std::set<std::string, std::less<>>>& target) {
    return [&target](const YAML::Node& node, const std::string& path, fault_list& faults) {
        auto& names = target.emplace();
        bounded_list(exposed_max,
                     [&names](std::size_t, const YAML::Node& entry, const std::string& at, fault_list& found) {
                         std::string name;
                         plain_name(name, exposed_name_bytes_max)(entry, at, found);
                         if (!names.insert(std::move(name)).second) found.add(at, "is named more than once");
                     })(node, path, faults);
    };
}

read_value database_role(std::string& target) {
    return [&target](const YAML::Node& node, const std::string& path, fault_list& faults) {
        plain_name(target, database_role_bytes_max)(node, path, faults);
        if (target == no_database_role) faults.add(path, "\"none\" is no role of PostgreSQL");
    };
}

/// Returns the fields of an entry that say what its credential may do.
std::vector<field> rights_fields(rights_config& target) {
    return {{"scopes", scope_list(target.scopes)},
            {"prefixes", prefix_list(target.prefixes)},
            {"exposed", exposed_list(target.exposed)},
            {"database_role", database_role(target.database_role)}};
}

/// Checks that an entry says for what it has rights.
void check_rights(const YAML::Node& entry, const std::string& path, fault_list& faults) {
    const auto is_empty = [&](const char* key) {
        return !entry[key] || entry[key].IsNull() || (entry[key].IsSequence() && entry[key].size() == 0);
    };
    if (entry.IsMap() && is_empty("scopes") && is_empty("prefixes"))
        faults.add(path + ".scopes", "must name at least one scope, unless there are prefixes");
}

bool is_sha256(const std::string& text) {
    return text.size() == 64 && lockcore::is_lower_hex(text);
}

void read_api_key(const YAML::Node& node, const std::string& path, fault_list& faults,
                  const std::filesystem::path& folder, std::vector<api_key>& keys) {
    api_key read;
    std::string plain;
    std::vector<field> fields{{"principal", plain_name(read.principal, principal_bytes_max), true},
                              {"key_sha256", text(read.key_sha256)},
                              {"key_file", secret_file(plain, folder)}};
    std::ranges::move(rights_fields(read.rights), std::back_inserter(fields));
    mapping(std::move(fields))(node, path, faults);
    check_rights(node, path, faults);
    const bool has_hash = node.IsMap() && node["key_sha256"];
    const bool has_file = node.IsMap() && node["key_file"];
    if (has_hash == has_file && !faults.covers(path)) faults.add(path, "needs one of key_sha256 and key_file");
    if (has_hash && !is_sha256(read.key_sha256))
        faults.add(path + ".key_sha256", "must be 64 lower-case hexadecimal digits");
    if (has_file && !plain.empty()) {
        if (plain.size() < api_key_min_bytes) faults.add(path + ".key_file", "the key in it is shorter than 16 bytes");
        read.key_sha256 = sha256_hex(plain);
        overwrite_secret(plain);
    }
    for (const auto& earlier : keys) {
        if (!earlier.key_sha256.empty() && earlier.key_sha256 == read.key_sha256)
            faults.add(path, "has the key of " + earlier.principal + " again");
    }
    keys.push_back(std::move(read));
}

/// Reads a text or a list of 1 to `entries_max` texts.
read_value text_or_list(std::vector<std::string>& target, std::size_t entries_max) {
    return [&target, entries_max](const YAML::Node& node, const std::string& path, fault_list& faults) {
        const auto read_entry = [&target](std::size_t, const YAML::Node& entry, const std::string& at,
                                          fault_list& found) { text(target.emplace_back())(entry, at, found); };
        if (!node.IsSequence()) return read_entry(0, node, path, faults);
        if (node.size() == 0) return faults.add(path, "must have at least one entry");
        bounded_list(entries_max, read_entry)(node, path, faults);
    };
}

read_value json_pointer(std::string& target) {
    return [&target](const YAML::Node& node, const std::string& path, fault_list& faults) {
        if (!read_scalar(node, path, faults, target)) return;
        bool valid = target.size() <= claim_pointer_bytes_max && target.starts_with('/');
        for (std::size_t at = target.find('~'); at != std::string::npos; at = target.find('~', at + 1))
            valid = valid && at + 1 < target.size() && (target[at + 1] == '0' || target[at + 1] == '1');
        if (!valid)
            faults.add(path, "has to be a JSON pointer of at most 200 bytes, such as /scope or /fencegate/scopes");
    };
}

read_value token_keys_file(std::optional<token_key_set>& target, const std::filesystem::path& folder) {
    return [&target, folder](const YAML::Node& node, const std::string& path, fault_list& faults) {
        named_file json;
        file(json, folder, token_key_set::text_bytes_max)(node, path, faults);
        if (faults.covers(path)) return;
        std::vector<std::string> key_faults;
        auto keys = token_key_set::parse(json.text, key_faults);
        if (!key_faults.empty()) faults.add(path, json.name + " " + key_faults.front());
        target = std::move(keys);
    };
}

/// Returns whether keys may be fetched from a URL: https, or http from this machine, where nobody can change the
/// answer.
bool is_key_url(std::string_view url) {
    const bool secure = url.starts_with("https://");
    if (!secure && !url.starts_with("http://")) return false;
    const bool visible = std::ranges::all_of(url, [](char c) { return c > ' ' && c <= '~'; });
    url.remove_prefix(secure ? 8 : 7);
    const auto host = parse_authority(url.substr(0, url.find_first_of("/?#")));
    return visible && host && (secure || is_loopback_host(host->host));
}

void read_jwt(const YAML::Node& node, const std::string& path, fault_list& faults, const std::filesystem::path& folder,
              std::optional<jwt_config>& target) {
    using namespace std::chrono_literals;
    jwt_config& read = target.emplace();
    std::set<token_algorithm> algorithms;
    const auto read_algorithm = [&algorithms](std::size_t, const YAML::Node& entry, const std::string& at,
                                              fault_list& found) {
        std::optional<token_algorithm> value;
        choice<std::optional<token_algorithm>>(value, {{"RS256", token_algorithm::rs256},
                                                       {"ES256", token_algorithm::es256},
                                                       {"EdDSA", token_algorithm::eddsa}})(entry, at, found);
        if (value) algorithms.insert(*value);
    };
    mapping({{"issuer", text(read.issuer), true},
             {"audience", text_or_list(read.audiences, audiences_max), true},
             {"jwks_file", token_keys_file(read.keys, folder)},
             {"jwks_url", text(read.jwks_url)},
             {"jwks_ca_file", authorities_file(read.jwks_ca_file, folder)},
             {"refresh_ms", duration(read.refresh, 10s, 24h)},
             {"algorithms", list(read_algorithm)},
             {"clock_skew_ms", duration(read.clock_skew, 0s, 5min)},
             {"principal_claim", json_pointer(read.principal_claim)},
             {"scopes_claim", json_pointer(read.scopes_claim)},
             {"prefixes_claim", json_pointer(read.prefixes_claim)},
             {"exposed_claim", json_pointer(read.exposed_claim)},
             {"database_role_claim", json_pointer(read.database_role_claim)}})(node, path, faults);
    if (!node.IsMap()) return;
    if (static_cast<bool>(node["jwks_file"]) == static_cast<bool>(node["jwks_url"]))
        faults.add(path, "needs one of jwks_file and jwks_url");
    if (!read.jwks_url.empty() && !is_key_url(read.jwks_url))
        faults.add(path + ".jwks_url", "has to be an https URL, or an http URL with a loopback host");
    if (node["jwks_ca_file"] && !node["jwks_url"]) faults.add(path + ".jwks_ca_file", "needs jwks_url");
    if (node["algorithms"]) {
        if (node["algorithms"].size() == 0) faults.add(path + ".algorithms", "must have at least one entry");
        read.algorithms = std::move(algorithms);
    }
}

void read_certificate(const YAML::Node& node, const std::string& path, fault_list& faults,
                      std::vector<certificate_config>& certificates) {
    using compared_field = certificate_config::field;
    certificate_config read;
    std::string subject, dns, uri;
    std::vector<field> fields{{"principal", plain_name(read.principal, principal_bytes_max), true},
                              {"subject", plain_name(subject, certificate_name_bytes_max)},
                              {"dns", plain_name(dns, certificate_name_bytes_max)},
                              {"uri", plain_name(uri, certificate_name_bytes_max)}};
    std::ranges::move(rights_fields(read.rights), std::back_inserter(fields));
    mapping(std::move(fields))(node, path, faults);
    check_rights(node, path, faults);
    if (!node.IsMap()) return;
    std::size_t given = 0;
    for (const auto& [key, value, compared] :
         {std::tuple{"subject", &subject, compared_field::subject}, std::tuple{"dns", &dns, compared_field::dns},
          std::tuple{"uri", &uri, compared_field::uri}}) {
        if (!node[key]) continue;
        ++given;
        read.compared = compared;
        read.value = *value;
    }
    if (given != 1) faults.add(path, "needs exactly one of subject, dns and uri");
    for (const auto& earlier : certificates) {
        if (!read.value.empty() && earlier.compared == read.compared && earlier.value == read.value)
            faults.add(path, "has the certificate of " + earlier.principal + " again");
    }
    certificates.push_back(std::move(read));
}

}  // namespace

bool verify_alike(jwt_config a, const jwt_config& b) {
    a.keys = b.keys;
    a.jwks_url = b.jwks_url;
    a.jwks_ca_file = b.jwks_ca_file;
    a.refresh = b.refresh;
    return a == b;
}

bool is_plain_name(std::string_view text, std::size_t bytes_max) {
    return !text.empty() && text.size() <= bytes_max && !lockcore::has_control_character(text);
}

read_value auth_section(auth_config& target, const std::filesystem::path& folder) {
    const auto read_key = [&target, folder](std::size_t, const YAML::Node& node, const std::string& path,
                                            fault_list& faults) {
        read_api_key(node, path, faults, folder, target.api_keys);
    };
    const auto read_one = [&target](std::size_t, const YAML::Node& node, const std::string& path, fault_list& faults) {
        read_certificate(node, path, faults, target.client_certificates);
    };
    const auto read_tokens = [&target, folder](const YAML::Node& node, const std::string& path, fault_list& faults) {
        read_jwt(node, path, faults, folder, target.jwt);
    };
    return mapping({
        reloadable("api_keys", {target.api_keys, bounded_list(credentials_max, read_key)}),
        reloadable("jwt", {target.jwt, read_tokens}),
        reloadable("client_certificates", {target.client_certificates, bounded_list(credentials_max, read_one)}),
    });
}

}  // namespace fencegate
