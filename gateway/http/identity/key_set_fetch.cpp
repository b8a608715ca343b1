#include <gateway/http/identity/key_set_fetch.hpp>
#include <gateway/runtime/transfer_error.hpp>

#include <curl/curl.h>

#include <array>
#include <memory>

namespace fencegate::http {
namespace {

constexpr long total_timeout_ms = 10'000;
constexpr long connect_timeout_ms = 5'000;

struct transfer {
    std::string text;
    const std::stop_token& stop;
};

std::size_t append(char* data, std::size_t size, std::size_t count, void* target) {
    std::string& text = static_cast<transfer*>(target)->text;
    if (text.size() + size * count > token_key_set::text_bytes_max) return 0;  // curl then ends the transfer
    text.append(data, size * count);
    return size * count;
}

int should_stop(void* target, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<transfer*>(target)->stop.stop_requested() ? 1 : 0;
}

}  // namespace

std::optional<std::string> fetch_key_set(const jwt_config& cfg, const std::stop_token& stop, std::string& fault) {
    static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
    const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), curl_easy_cleanup);
    if (initialised != CURLE_OK || !curl) {
        fault = "libcurl can't be initialised";
        return std::nullopt;
    }
    transfer state{{}, stop};
    std::array<char, CURL_ERROR_SIZE> detail{};
    const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(curl.get(), option, value); };
    set(CURLOPT_URL, cfg.jwks_url.c_str());
    set(CURLOPT_PROTOCOLS_STR, cfg.jwks_url.starts_with("https:") ? "https" : "http");
    // Without TLS nobody between here and the issuer may change the answer: the configuration allows loopback only.
    if (cfg.jwks_url.starts_with("http:")) set(CURLOPT_PROXY, "");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_TIMEOUT_MS, total_timeout_ms);
    set(CURLOPT_CONNECTTIMEOUT_MS, connect_timeout_ms);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_QUICK_EXIT, 1L);  // otherwise the end waits for a name server that does not answer
    set(CURLOPT_WRITEFUNCTION, &append);
    set(CURLOPT_WRITEDATA, &state);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &should_stop);
    set(CURLOPT_XFERINFODATA, &state);
    set(CURLOPT_ERRORBUFFER, detail.data());
    if (!cfg.jwks_ca_file.empty()) {
        set(CURLOPT_CAINFO, cfg.jwks_ca_file.c_str());
        set(CURLOPT_CAPATH, static_cast<char*>(nullptr));  // libcurl would trust the system's authorities as well
    }
    const CURLcode ended = curl_easy_perform(curl.get());
    if (ended == CURLE_WRITE_ERROR) {
        fault = "the answer is longer than " + std::to_string(token_key_set::text_bytes_max) + " bytes";
        return std::nullopt;
    }
    if (ended != CURLE_OK) {
        fault = runtime::hide_proxy(detail.front() == '\0' ? curl_easy_strerror(ended) : detail.data());
        return std::nullopt;
    }
    long status = 0;
    curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
        fault = "the answer has the status " + std::to_string(status);
        return std::nullopt;
    }
    return std::move(state.text);
}

}  // namespace fencegate::http
