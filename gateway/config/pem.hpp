#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate {

struct x509_deleter {
    void operator()(X509* certificate) const { X509_free(certificate); }
};
using x509_handle = std::unique_ptr<X509, x509_deleter>;

struct pkey_deleter {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using pkey_handle = std::unique_ptr<EVP_PKEY, pkey_deleter>;

/// Reads the certificates of a text in PEM, in their order.
///
/// Out: empty if there is none, or if one of them is damaged.
std::vector<x509_handle> read_certificates(const std::string& pem);

/// Reads the first private key of a text in PEM.
///
/// Out: null if there is none, if it is damaged, or if it is encrypted; then `encrypted` (may be null) says which.
pkey_handle read_private_key(const std::string& pem, bool* encrypted = nullptr);

/// Reads the first public key of a text in PEM. Out: null if there is none, or if it is damaged.
pkey_handle read_public_key(const std::string& pem);

/// Returns why a certificate is not valid at this time: `expired on 2026-11-01T00:00:00Z`; empty if it is.
std::optional<std::string> find_validity_fault(const X509& certificate);

/// Returns the time until which a certificate is valid.
std::chrono::system_clock::time_point end_of_validity(const X509& certificate);

/// Returns the same as text: `2026-11-01T00:00:00Z`.
std::string expiry_of(const X509& certificate);

}  // namespace fencegate
