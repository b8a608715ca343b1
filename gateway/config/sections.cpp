#include <gateway/config/sections.hpp>

#include <gateway/config/conninfo.hpp>
#include <gateway/config/pem.hpp>
#include <gateway/config/secrets.hpp>

#include <lockcore/hmac_sha256.hpp>

#include <algorithm>
#include <utility>

namespace fencegate {
namespace {

using namespace config_reader;

constexpr std::int64_t count_max = 1'000'000;
constexpr std::int64_t burst_max = 10'000'000;
constexpr std::size_t principals_max = 10'000;

std::vector<field> rate_fields(request_rate& target) {
    return {{"requests_per_second", integer(target.per_second, 0, count_max)},
            {"requests_burst", integer(target.burst, 0, burst_max)}};
}

void check_rate(const request_rate& rate, const std::string& path, fault_list& faults) {
    if (rate.burst > 0 && rate.per_second == 0 && !faults.covers(path))
        faults.add(path + ".requests_burst", "has no effect while requests_per_second is 0");
}

std::vector<field> principal_fields(principal_limits& target) {
    auto out = rate_fields(target.requests);
    out.push_back({"leases_max", integer(target.leases_max, 0, count_max)});
    out.push_back({"waiters_max", integer(target.waiters_max, 0, count_max)});
    out.push_back({"streams_max", integer(target.streams_max, 0, count_max)});
    return out;
}

void read_principal(const YAML::Node& node, const std::string& path, fault_list& faults, limits_config& target) {
    std::string name;
    principal_limits limits = target.principal;
    auto fields = principal_fields(limits);
    fields.push_back({"principal", text(name), true});
    mapping(std::move(fields))(node, path, faults);
    // The burst that an entry takes from `principal` is no fault of the entry.
    if (node.IsMap() && node["requests_burst"]) check_rate(limits.requests, path, faults);
    if (name.empty()) return;
    if (!target.principals.emplace(name, limits).second)
        faults.add(path + ".principal", "an earlier entry has the limits of this principal");
}

constexpr const char* signing_key_variable = "FENCEGATE_SIGNING_KEY";
constexpr const char* signing_key_path = "lease.signing_key_file";
constexpr const char* verification_keys_path = "lease.verification_key_files";
constexpr std::size_t verification_keys_max = 4;
constexpr const char* digest_public_keys_path = "audit.digest_public_key_files";
constexpr std::size_t digest_public_keys_max = 16;

void check_length(const std::string& key, const std::string& path, config_reader::fault_list& faults) {
    if (key.size() < lockcore::hmac_sha256::key_bytes_min)
        faults.add(path, "the key has " + std::to_string(key.size()) + " bytes; it needs at least 32");
}

/// The bundle of a Debian system has 220 KB.
constexpr std::size_t authorities_max_bytes = 1 << 20;
constexpr std::size_t pem_max_bytes = 64 << 10;
/// The security of RSA with 2,048 bits, the least that OpenSSL accepts at its default level.
constexpr int key_security_bits_min = 112;
const std::string section = "http.tls";

/// The files of a mapping with the keys ca_file or client_ca_file, certificate_file and key_file.
struct pem_files {
    named_file authorities, certificates, key;
};

bool check_certificates(const std::string& pem, const std::string& path, fault_list& faults) {
    const bool readable = !read_certificates(pem).empty();
    if (!readable) faults.add(path, "has no readable certificate in PEM, or a damaged one");
    return readable;
}

void check_key(const pem_files& files, bool has_certificate, const std::string& path, fault_list& faults) {
    bool encrypted = false;
    faults.check_permissions(path, files.key.name);
    const pkey_handle key = read_private_key(files.key.text, &encrypted);
    if (encrypted) return faults.add(path, "is encrypted; the gateway needs the key without a passphrase");
    if (!key) return faults.add(path, "has no readable private key in PEM");
    if (EVP_PKEY_get_security_bits(key.get()) < key_security_bits_min)
        return faults.add(path,
                          "is too weak: it needs 112 bits of security, such as RSA with 2048 bits or ECDSA P-256");
    if (has_certificate &&
        X509_check_private_key(read_certificates(files.certificates.text).front().get(), key.get()) != 1)
        faults.add(path, "is not the key of the first certificate in certificate_file");
}

/// Checks each file that the mapping `node` names.
void check_files(const pem_files& files, const std::string& authorities_key, const YAML::Node& node,
                 const std::string& path, fault_list& faults) {
    if (!node.IsMap()) return;
    const auto is_read = [&](const std::string& key) { return node[key] && !faults.covers(path + "." + key); };
    const bool has_certificate =
        is_read("certificate_file") && check_certificates(files.certificates.text, path + ".certificate_file", faults);
    if (is_read("key_file")) check_key(files, has_certificate, path + ".key_file", faults);
    if (is_read(authorities_key)) check_certificates(files.authorities.text, path + "." + authorities_key, faults);
}

}  // namespace

read_value limits_section(limits_config& target) {
    return {target, [&target](const YAML::Node& node, const std::string& path, fault_list& faults) {
                YAML::Node principals;
                const auto keep_principals = [&principals](const YAML::Node& entries, const std::string&, fault_list&) {
                    principals.reset(entries);
                };
                auto address = rate_fields(target.address.requests);
                address.push_back({"failed_authentications_per_minute",
                                   integer(target.address.failed_authentications_per_minute, 0, count_max)});
                mapping({
                    {"address", mapping(std::move(address))},
                    {"principal", mapping(principal_fields(target.principal))},
                    {"principals", keep_principals},
                })(node, path, faults);
                check_rate(target.address.requests, path + ".address", faults);
                check_rate(target.principal.requests, path + ".principal", faults);
                // After `principal`, wherever the file has that, because an entry inherits the keys that it lacks.
                list([&target](std::size_t i, const YAML::Node& entry, const std::string& entry_path, fault_list& all) {
                    if (i == principals_max) all.add("limits.principals", "has more than 10,000 entries");
                    if (i < principals_max) read_principal(entry, entry_path, all, target);
                })(principals, path + ".principals", faults);
            }};
}

config_reader::read_value verification_key_files(std::vector<std::string>& keys, const std::filesystem::path& folder) {
    const auto read_key = [&keys, folder](std::size_t i, const YAML::Node& node, const std::string& path,
                                          config_reader::fault_list& faults) {
        std::string name, fault;
        if (i == verification_keys_max) faults.add(verification_keys_path, "has more than 4 entries");
        if (i >= verification_keys_max) return;
        std::string& read = keys.emplace_back();  // empty after a fault, so that each key has the position of its file
        if (!config_reader::read_scalar(node, path, faults, name)) return;
        if (auto key = read_secret(folder / name, fault)) {
            read = std::move(*key);
            faults.check_permissions(path, folder / name);
        } else {
            faults.add(path, fault);
        }
    };
    return {keys, config_reader::list(read_key)};
}

config_reader::read_value public_key_files(std::vector<std::string>& keys, const std::filesystem::path& folder) {
    const auto read_key = [&keys, folder](std::size_t i, const YAML::Node& node, const std::string& path,
                                          config_reader::fault_list& faults) {
        std::string name, fault;
        if (i == digest_public_keys_max) faults.add(digest_public_keys_path, "has more than 16 entries");
        if (i >= digest_public_keys_max) return;
        std::string& read = keys.emplace_back();
        if (!config_reader::read_scalar(node, path, faults, name)) return;
        if (auto key = read_text_file(folder / name, secret_max_bytes, fault)) {
            read = std::move(*key);
        } else {
            faults.add(path, fault);
        }
    };
    return {keys, config_reader::list(read_key)};
}

void check_signing_keys(std::string& signing_key, const std::vector<std::string>& verification_keys,
                        config_reader::fault_list& faults) {
    const std::string from_environment = take_secret_variable(signing_key_variable);
    if (!faults.covers(signing_key_path)) {
        const bool is_variable = signing_key.empty();
        if (is_variable) signing_key = from_environment;
        if (signing_key.empty())
            faults.add(signing_key_path,
                       std::string("is missing, and the environment variable ") + signing_key_variable + " is not set");
        else
            check_length(signing_key, is_variable ? signing_key_variable : signing_key_path, faults);
    }
    const auto first = verification_keys.begin();
    for (auto key = first; key != verification_keys.end(); ++key) {
        const std::string path = verification_keys_path + ("[" + std::to_string(key - first) + "]");
        if (faults.covers(path)) continue;
        check_length(*key, path, faults);
        if (*key == signing_key)
            faults.add(path, "is the key that signs; name the others that count");
        else if (std::find(first, key, *key) != key)
            faults.add(path, "is named twice");
    }
}

read_value tls_section(std::optional<tls_config>& target, const std::filesystem::path& folder) {
    return {target, [&target, folder](const YAML::Node& node, const std::string& path, fault_list& faults) {
                tls_config& tls = target.emplace();
                pem_files files;
                mapping({
                    {"certificate_file", file(files.certificates, folder, pem_max_bytes), true},
                    {"key_file", file(files.key, folder, pem_max_bytes), true},
                    {"minimum_version", choice<tls_version>(tls.minimum_version,
                                                            {{"1.2", tls_version::v1_2}, {"1.3", tls_version::v1_3}})},
                    {"client_ca_file", file(files.authorities, folder, pem_max_bytes)},
                    {"client_certificates",
                     choice<bool>(tls.client_certificates_required, {{"optional", false}, {"required", true}})},
                })(node, path, faults);
                check_files(files, "client_ca_file", node, path, faults);
                if (node.IsMap() && node["client_certificates"] && !node["client_ca_file"])
                    faults.add(path + ".client_certificates",
                               "needs client_ca_file, with the authorities that are trusted");
                tls.certificates = std::move(files.certificates.text);
                tls.key = std::move(files.key.text);
                tls.client_authorities = std::move(files.authorities.text);
            }};
}

read_value node_tls_section(std::optional<lockcore::node_tls>& target, const std::filesystem::path& folder) {
    return {target, [&target, folder](const YAML::Node& node, const std::string& path, fault_list& faults) {
                pem_files files;
                mapping({
                    {"ca_file", file(files.authorities, folder, authorities_max_bytes)},
                    {"certificate_file", file(files.certificates, folder, pem_max_bytes)},
                    {"key_file", file(files.key, folder, pem_max_bytes)},
                })(node, path, faults);
                check_files(files, "ca_file", node, path, faults);
                if (node.IsMap() && node["certificate_file"].IsDefined() != node["key_file"].IsDefined())
                    faults.add(path, "certificate_file and key_file are given together or not at all");
                target = lockcore::node_tls{files.authorities.name, files.certificates.name, files.key.name};
                overwrite_secret(files.key.text);
            }};
}

read_value authorities_file(std::string& target, const std::filesystem::path& folder) {
    return [&target, folder](const YAML::Node& node, const std::string& path, fault_list& faults) {
        named_file read;
        file(read, folder, authorities_max_bytes)(node, path, faults);
        if (!faults.covers(path)) check_certificates(read.text, path, faults);
        target = std::move(read.name);
    };
}

std::vector<certificate_end> find_certificate_ends(const std::optional<tls_config>& tls,
                                                   const std::optional<lockcore::node_tls>& redis_tls,
                                                   const std::string& conninfo) {
    std::vector<certificate_end> out;
    const auto add = [&out](const std::string& name, const std::string& pem) {
        std::optional<std::chrono::system_clock::time_point> first;
        for (const x509_handle& certificate : read_certificates(pem)) {
            const auto end = end_of_validity(*certificate);
            first = first ? std::min(*first, end) : end;
        }
        if (first) out.push_back({name, *first});
    };
    const auto add_file = [&add](const std::string& name, const std::string& path) {
        std::string fault;
        if (path.empty()) return;
        if (const auto pem = read_text_file(path, pem_max_bytes, fault)) add(name, *pem);
    };
    if (tls) {
        add(section + ".certificate_file", tls->certificates);
        add(section + ".client_ca_file", tls->client_authorities);
    }
    if (redis_tls) add_file("redis.tls.certificate_file", redis_tls->certificate_file);
    add_file("postgres.conninfo sslcert", find_option(conninfo, "sslcert").value_or(""));
    return out;
}

std::vector<std::string> find_expired_certificates(const std::optional<tls_config>& tls) {
    std::vector<std::string> out;
    if (!tls) return out;
    const auto check_all = [&out](const std::string& key, const std::string& pem) {
        for (const x509_handle& certificate : read_certificates(pem)) {
            if (const auto fault = find_validity_fault(*certificate))
                out.push_back((section + '.' + key).append(": a certificate ").append(*fault));
        }
    };
    check_all("certificate_file", tls->certificates);
    check_all("client_ca_file", tls->client_authorities);
    return out;
}

}  // namespace fencegate
