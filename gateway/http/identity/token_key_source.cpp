#include <gateway/http/identity/token_key_source.hpp>

#include <gateway/http/identity/key_set_fetch.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace fencegate::http {

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

}  // namespace fencegate::http
