#include <gateway/config/tls_section.hpp>

#include <gateway/config/pem.hpp>
#include <gateway/config/secrets.hpp>

namespace fencegate {
namespace {

using namespace config_reader;

constexpr std::size_t pem_max_bytes = 64 << 10;
/// The security of RSA with 2,048 bits, the least that OpenSSL accepts at its default level.
constexpr int key_security_bits_min = 112;
const std::string section = "http.tls";

/// Reads a file of PEM texts into `target`.
read_value pem_file(std::string& target, const std::filesystem::path& folder) {
    return [&target, folder](const YAML::Node& node, const std::string& path, fault_list& faults) {
        std::string name, fault;
        if (!read_scalar(node, path, faults, name)) return;
        if (auto text = read_text_file(folder / name, pem_max_bytes, fault)) {
            target = std::move(*text);
        } else {
            faults.add(path, fault);
        }
    };
}

bool check_certificates(const std::string& pem, const std::string& path, fault_list& faults) {
    const bool readable = !read_certificates(pem).empty();
    if (!readable) faults.add(path, "has no readable certificate in PEM, or a damaged one");
    return readable;
}

void check_key(const tls_config& tls, bool has_certificate, fault_list& faults) {
    const std::string path = section + ".key_file";
    bool encrypted = false;
    const pkey_handle key = read_private_key(tls.key, &encrypted);
    if (encrypted) return faults.add(path, "is encrypted; the gateway needs the key without a passphrase");
    if (!key) return faults.add(path, "has no readable private key in PEM");
    if (EVP_PKEY_get_security_bits(key.get()) < key_security_bits_min)
        return faults.add(path,
                          "is too weak: it needs 112 bits of security, such as RSA with 2048 bits or ECDSA P-256");
    if (has_certificate && X509_check_private_key(read_certificates(tls.certificates).front().get(), key.get()) != 1)
        faults.add(path, "is not the key of the first certificate in certificate_file");
}

}  // namespace

read_value tls_section(std::optional<tls_config>& target, const std::filesystem::path& folder) {
    return [&target, folder](const YAML::Node& node, const std::string& path, fault_list& faults) {
        tls_config& tls = target.emplace();
        mapping({
            {"certificate_file", pem_file(tls.certificates, folder), true},
            {"key_file", pem_file(tls.key, folder), true},
            {"minimum_version",
             choice<tls_version>(tls.minimum_version, {{"1.2", tls_version::v1_2}, {"1.3", tls_version::v1_3}})},
            {"client_ca_file", pem_file(tls.client_authorities, folder)},
            {"client_certificates",
             choice<bool>(tls.client_certificates_required, {{"optional", false}, {"required", true}})},
        })(node, path, faults);
        const auto is_good = [&](const char* key) { return !faults.covers(section + "." + key); };
        const bool has_certificate =
            is_good("certificate_file") && check_certificates(tls.certificates, section + ".certificate_file", faults);
        if (is_good("key_file")) check_key(tls, has_certificate, faults);
        if (!node.IsMap()) return;
        if (node["client_ca_file"] && is_good("client_ca_file"))
            check_certificates(tls.client_authorities, section + ".client_ca_file", faults);
        if (node["client_certificates"] && !node["client_ca_file"])
            faults.add(section + ".client_certificates", "needs client_ca_file, with the authorities that are trusted");
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
