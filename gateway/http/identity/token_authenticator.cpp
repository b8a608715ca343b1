#include <gateway/http/identity/token_authenticator.hpp>

#include <gateway/runtime/text.hpp>

#include <spdlog/spdlog.h>

#include <curl/curl.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

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

/// A verification takes about 0.1 ms, so that tokens beyond these only take a little more time.
constexpr std::size_t cached_tokens_max = 2'000;

bool has_same_source(const jwt_config& a, const jwt_config& b) {
    return !a.keys && !b.keys && a.jwks_url == b.jwks_url && a.jwks_ca_file == b.jwks_ca_file;
}

constexpr std::chrono::seconds first_keys_timeout{5};

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

using std::chrono::steady_clock;

token_key_source::token_key_source(jwt_config cfg, std::chrono::milliseconds first_timeout, keys_ptr earlier)
    : token_key_source(std::move(cfg), first_timeout, fetch_key_set, {}, std::move(earlier)) {}

token_key_source::token_key_source(jwt_config cfg, std::chrono::milliseconds first_timeout, fetch_function fetch,
                                   pauses times, keys_ptr earlier)
    : cfg_(std::move(cfg)),
      fetch_(std::move(fetch)),
      pauses_(times),
      keys_(std::make_shared<const token_key_set>(cfg_.keys.value_or(token_key_set{}))),
      has_answer_(cfg_.keys || earlier) {
    if (cfg_.keys) return;
    const bool has_earlier = earlier && !earlier->keys().empty();
    if (has_earlier) keys_ = std::move(earlier);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    if (has_earlier) return;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, first_timeout, [this] { return asked_once_; });
}

token_key_source::~token_key_source() = default;

std::string token_key_source::fault() const {
    const std::lock_guard lock(mutex_);
    if (has_answer_) return {};
    return first_fault_.empty() ? "there was no answer in time" : first_fault_;
}

token_key_source::keys_ptr token_key_source::keys() const {
    const std::lock_guard lock(mutex_);
    return keys_;
}

void token_key_source::request_for_unknown_key() {
    if (!thread_.joinable()) return;
    const auto now = steady_clock::now();
    const std::lock_guard lock(mutex_);
    if (last_request_ && now - *last_request_ < pauses_.unknown_key) return;
    last_request_ = now;
    requested_ = true;
    changed_.notify_all();
}

void token_key_source::run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
        const bool succeeded = refresh(stop);
        const auto pause = succeeded ? cfg_.refresh : std::min(cfg_.refresh, pauses_.after_failure);
        std::unique_lock lock(mutex_);
        asked_once_ = true;
        has_answer_ = has_answer_ || succeeded;
        if (!has_answer_) first_fault_ = last_fault_;
        changed_.notify_all();
        changed_.wait_for(lock, stop, pause, [this] { return requested_; });
        requested_ = false;
    }
}

bool token_key_source::refresh(const std::stop_token& stop) {
    std::string fault;
    const auto fetched = fetch_(cfg_, stop, fault);
    if (stop.stop_requested()) return false;
    if (fetched && *fetched == text_) {
        last_fault_.clear();
        return true;
    }
    std::vector<std::string> key_faults;
    auto parsed = fetched ? token_key_set::parse(*fetched, key_faults) : std::nullopt;
    if (!parsed) {
        if (fetched) fault = "the answer " + key_faults.back();
        if (fault != last_fault_)
            spdlog::warn("keys of tokens: {}: {}; the gateway keeps those that it has ({})", cfg_.jwks_url, fault,
                         keys()->keys().size());
        last_fault_ = fault;
        return false;
    }
    for (const auto& left_out : key_faults)
        spdlog::warn("keys of tokens: {}: the answer {}", cfg_.jwks_url, left_out);
    text_ = *fetched;
    last_fault_.clear();
    if (*parsed == *this->keys()) return true;
    auto keys = std::make_shared<const token_key_set>(std::move(*parsed));
    spdlog::info("keys of tokens: {} has {}", cfg_.jwks_url, keys->keys().size());
    const std::lock_guard lock(mutex_);
    keys_ = std::move(keys);
    return true;
}

token_cache::caller_ptr token_cache::find(const digest& token, const keys_ptr& keys,
                                          std::chrono::system_clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (keys_ != keys) {
        places_.clear();
        entries_.clear();
        keys_ = keys;
    }
    const auto place = places_.find(token);
    if (place == places_.end()) return nullptr;
    if (place->second->caller->rights.valid_until() <= now) {
        entries_.erase(place->second);
        places_.erase(place);
        return nullptr;
    }
    entries_.splice(entries_.begin(), entries_, place->second);
    return entries_.front().caller;
}

void token_cache::insert(const digest& token, const keys_ptr& keys, caller_ptr caller) {
    const std::lock_guard lock(mutex_);
    if (keys_ != keys || places_.contains(token)) return;
    if (entries_.size() == tokens_max_) {
        places_.erase(entries_.back().token);
        entries_.pop_back();
    }
    entries_.push_front({token, std::move(caller)});
    places_.emplace(token, entries_.begin());
}

std::size_t token_cache::size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
}

token_authenticator::token_authenticator(const jwt_config& cfg, std::uint64_t rules,
                                         const token_authenticator* replaced)
    : cfg_(cfg),
      rules_(rules),
      source_(cfg, first_keys_timeout,
              replaced != nullptr && has_same_source(cfg, replaced->cfg_) ? replaced->keys() : nullptr),
      cache_(cached_tokens_max) {}

bool token_authenticator::accepts(const identity& caller) const {
    const auto keys = source_.keys();
    return std::ranges::any_of(keys->keys(),
                               [&](const token_key& key) { return credential_of(key) == caller.credential; });
}

std::string token_authenticator::credential_of(const token_key& key) const {
    return http::credential_of(key) + " " + std::to_string(rules_);
}

boost::system::result<std::shared_ptr<const identity>, token_fault> token_authenticator::identify(
    std::string_view token, std::chrono::system_clock::time_point now) {
    const auto keys = source_.keys();
    token_cache::digest digest{};
    if (token.size() <= token_bytes_max) {
        SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
        if (auto cached = cache_.find(digest, keys, now)) return cached;
    }
    auto verified = verify_token(token, cfg_, *keys, now);
    if (!verified) {
        if (verified.error().unknown_key) source_.request_for_unknown_key();
        return verified.error();
    }
    verified->credential += " " + std::to_string(rules_);
    auto caller = std::make_shared<const identity>(std::move(*verified));
    cache_.insert(digest, keys, caller);
    return caller;
}

}  // namespace fencegate::http
