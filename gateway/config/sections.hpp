#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/config/limits.hpp>
#include <gateway/config/reader.hpp>

#include <lockcore/config.hpp>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fencegate {

/// Returns a reader for the section `auth`. Relative file names start at `folder`.
config_reader::read_value auth_section(auth_config& target, const std::filesystem::path& folder);

/// Returns a reader for the section `limits`.
config_reader::read_value limits_section(limits_config& target);

/// Returns a reader for lease.verification_key_files, which reads each file that the list names into `keys`. Relative
/// names start at `folder`.
config_reader::read_value verification_key_files(std::vector<std::string>& keys, const std::filesystem::path& folder);

/// Returns a reader for audit.digest_public_key_files, likewise.
config_reader::read_value public_key_files(std::vector<std::string>& keys, const std::filesystem::path& folder);

/// Takes the signing key from FENCEGATE_SIGNING_KEY if it is empty, and adds a fault for a missing, short or repeated
/// key.
void check_signing_keys(std::string& signing_key, const std::vector<std::string>& verification_keys,
                        config_reader::fault_list& faults);

/// Returns a reader for the section http.tls, which reads the files that it names. Relative names start at `folder`.
/// Faults: a file that cannot be read or parsed, a key that is encrypted or does not belong to the certificate, a key
/// of less than 112 bits of security (RSA below 2,048 bits).
config_reader::read_value tls_section(std::optional<tls_config>& target, const std::filesystem::path& folder);

/// Returns a reader for the section redis.tls, which checks the files that it names as tls_section does, and keeps
/// their names.
config_reader::read_value node_tls_section(std::optional<lockcore::node_tls>& target,
                                           const std::filesystem::path& folder);

/// Returns a reader for the name of a file with the certificates of authorities that are trusted.
config_reader::read_value authorities_file(std::string& target, const std::filesystem::path& folder);

/// When the first certificate of a file expires.
struct certificate_end {
    std::string name;  ///< The key that names the file, as `http.tls.certificate_file` or `postgres.conninfo sslcert`.
    std::chrono::system_clock::time_point at;
};

/// Returns the ends of the certificates that the gateway shows to callers, nodes and PostgreSQL, and of the authorities
/// of its callers. Reads those that are not in the configuration; files that can't be read are left out.
std::vector<certificate_end> find_certificate_ends(const std::optional<tls_config>& tls,
                                                   const std::optional<lockcore::node_tls>& redis_tls,
                                                   const std::string& conninfo);

/// Returns what callers would refuse although TLS works: certificates that have expired or are not valid yet. Each is
/// "path: what is wrong". Empty without http.tls.
std::vector<std::string> find_expired_certificates(const std::optional<tls_config>& tls);

}  // namespace fencegate
