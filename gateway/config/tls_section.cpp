#include <gateway/config/tls_section.hpp>

#include <gateway/config/pem.hpp>
#include <gateway/config/secrets.hpp>

#include <utility>

namespace fencegate {
namespace {

using namespace config_reader;

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
