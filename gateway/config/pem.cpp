#include <gateway/config/pem.hpp>

#include <openssl/err.h>
#include <openssl/pem.h>

#include <array>
#include <ctime>

namespace fencegate {
namespace {

struct bio_deleter {
    void operator()(BIO* bio) const { BIO_free(bio); }
};
using bio_handle = std::unique_ptr<BIO, bio_deleter>;

bio_handle open_text(const std::string& pem) {
    return bio_handle(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

/// Is called for the passphrase of an encrypted key.
int note_encrypted(char*, int, int, void* encrypted) {
    *static_cast<bool*>(encrypted) = true;
    return -1;
}

std::string to_text(const ASN1_TIME& time) {
    std::tm utc{};
    std::array<char, 32> text{};
    if (ASN1_TIME_to_tm(&time, &utc) != 1) return "an unreadable time";
    return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

}  // namespace

std::vector<x509_handle> read_certificates(const std::string& pem) {
    std::vector<x509_handle> out;
    const bio_handle text = open_text(pem);
    while (X509* read = PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr))
        out.emplace_back(read);
    // After the last certificate OpenSSL finds no further first line.
    const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    ERR_clear_error();
    if (!at_end) out.clear();
    return out;
}

pkey_handle read_private_key(const std::string& pem, bool* encrypted) {
    bool needs_passphrase = false;
    pkey_handle out(PEM_read_bio_PrivateKey(open_text(pem).get(), nullptr, &note_encrypted, &needs_passphrase));
    ERR_clear_error();
    if (encrypted != nullptr) *encrypted = needs_passphrase;
    return out;
}

pkey_handle read_public_key(const std::string& pem) {
    pkey_handle out(PEM_read_bio_PUBKEY(open_text(pem).get(), nullptr, nullptr, nullptr));
    ERR_clear_error();
    return out;
}

std::optional<std::string> find_validity_fault(const X509& certificate) {
    const ASN1_TIME* const first = X509_get0_notBefore(&certificate);
    const ASN1_TIME* const last = X509_get0_notAfter(&certificate);
    if (X509_cmp_current_time(last) < 0) return "expired on " + to_text(*last);
    if (X509_cmp_current_time(first) > 0) return "is not valid before " + to_text(*first);
    return std::nullopt;
}

std::chrono::system_clock::time_point end_of_validity(const X509& certificate) {
    std::tm last{};
    if (ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &last) != 1) return {};
    return std::chrono::system_clock::from_time_t(::timegm(&last));
}

std::string expiry_of(const X509& certificate) {
    return to_text(*X509_get0_notAfter(&certificate));
}

}  // namespace fencegate
