#pragma once

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <string>

namespace fencegate {

/// A certificate for localhost that signs itself, and its key, in PEM.
struct self_signed {
    std::string certificate, key;

    /// `valid_until`: seconds from now. `names`: subjectAltName in OpenSSL's form, `DNS:a,URI:b`; null: none.
    explicit self_signed(EVP_PKEY* pair = EVP_EC_gen("P-256"), long valid_until = 3600,
                         const std::string& common_name = "localhost", const char* names = nullptr) {
        X509* const made = X509_new();
        X509_set_version(made, X509_VERSION_3);
        X509_gmtime_adj(X509_getm_notBefore(made), -7200);
        X509_gmtime_adj(X509_getm_notAfter(made), valid_until);
        X509_set_pubkey(made, pair);
        X509_NAME* const name = X509_get_subject_name(made);
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                   reinterpret_cast<const unsigned char*>(common_name.data()),
                                   static_cast<int>(common_name.size()), -1, 0);
        X509_set_issuer_name(made, name);
        if (names != nullptr) {
            X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names);
            X509_add_ext(made, extension, -1);
            X509_EXTENSION_free(extension);
        }
        X509_sign(made, pair, EVP_sha256());
        certificate = written([made](BIO* out) { PEM_write_bio_X509(out, made); });
        key = written([pair](BIO* out) { PEM_write_bio_PrivateKey(out, pair, nullptr, nullptr, 0, nullptr, nullptr); });
        X509_free(made);
        EVP_PKEY_free(pair);
    }

  private:
    static std::string written(const auto& write) {
        BIO* const out = BIO_new(BIO_s_mem());
        write(out);
        char* text = nullptr;
        const long size = BIO_get_mem_data(out, &text);
        std::string made(text, static_cast<std::size_t>(size));
        BIO_free(out);
        return made;
    }
};

}  // namespace fencegate
