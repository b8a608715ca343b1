#include <gateway/limits/limiter.hpp>

#include <gateway/domain/principal_share.hpp>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace fencegate::limits {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

/// Returns whole seconds, rounded up, at least one.
long long seconds_of(nanoseconds time) {
    return std::max<long long>(std::chrono::ceil<seconds>(time).count(), 1);
}

failure too_many(std::string detail, nanoseconds retry_after) {
    failure out = make_failure(errc::too_many_requests, std::move(detail));
    out.retry_after = std::chrono::ceil<std::chrono::milliseconds>(retry_after);
    return out;
}

const principal_limits& limits_of(const limits_config& limits, const std::string& principal) {
    const auto own = limits.principals.find(principal);
    return own == limits.principals.end() ? limits.principal : own->second;
}

std::uint64_t hash_of(std::string_view text) {
    return std::hash<std::string_view>()(text);
}

}  // namespace

void rate_fields::add(std::string_view name, const bucket_size& limit, const bucket_level& level) {
    if (!policy.empty()) {
        policy += ", ";
        state += ", ";
    }
    policy += '"';
    policy += name;
    policy += "\";q=" + std::to_string(limit.size) + ";w=" + std::to_string(seconds_of(limit.time_to_fill()));
    state += '"';
    state += name;
    state += "\";r=" + std::to_string(level.remaining) + ";t=" + std::to_string(seconds_of(level.until_full));
}

std::string_view to_string(refusal kind) {
    switch (kind) {
        case refusal::address_rate:
            return "address_rate";
        case refusal::failed_authentications:
            return "failed_authentications";
        case refusal::principal_rate:
            return "principal_rate";
        case refusal::requests:
            return "requests";
        case refusal::waiters:
            return "waiters";
        case refusal::streams:
            return "streams";
        case refusal::leases:
            return "leases";
    }
    return "unknown";
}

std::size_t limiter::address_hash::operator()(const address_key& key) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(key.data()), key.size()});
}

limiter::limiter(const limits_config& limits, const principal_shares& places, bool one_principal,
                 std::size_t connections_of_address)
    : places_(places), long_requests_(std::make_shared<long_requests>(places.requests, connections_of_address)) {
    set_limits(limits, one_principal);
}

void limiter::set_limits(const limits_config& limits, bool one_principal) {
    const auto requests = make_bucket_size(limits.address.requests);
    const auto failures = make_bucket_size_per_minute(limits.address.failed_authentications_per_minute);
    for (shard& each : shards_) {
        const std::lock_guard lock(each.mutex);
        each.requests = requests;
        each.failures = failures;
    }
    const std::lock_guard lock(mutex_);
    limits_ = limits;
    one_principal_ = one_principal;
    shares_ = one_principal ? places_
                            : principal_shares{.requests = share_of(places_.requests),
                                               .waiters = share_of(places_.waiters),
                                               .history_streams = share_of(places_.history_streams)};
    limits_requests_ = requests.is_limited();
    limits_failures_ = failures.is_limited();
    callers_.for_each([this](const std::shared_ptr<caller>& known) {
        known->set_limits(limits_of(limits_, known->principal()), shares_);
    });
}

limiter::shard& limiter::shard_of(const address_key& key) {
    return shards_[address_hash()(key) % shard_count];
}

result<void> limiter::admit_address(const boost::asio::ip::address& peer, time_point now, rate_fields& fields,
                                    request_class kind) {
    if (!limits_requests_.load(std::memory_order_relaxed)) return {};
    const address_key key = key_of(peer);
    shard& own = shard_of(key);
    bucket_size limit;
    bucket_level level;
    {
        const std::lock_guard lock(own.mutex);
        limit = own.requests;
        level = own.addresses.find_or_add(key).requests[static_cast<std::size_t>(kind)].take(limit, now);
    }
    if (!limit.is_limited()) return {};
    fields.add(kind == request_class::of_lease ? "address-leases" : "address", limit, level);
    if (level.admitted) return {};
    count_refusal(refusal::address_rate);
    return too_many("This address sends more requests than limits.address allows.", level.retry_after);
}

result<void> limiter::admit_credential(const boost::asio::ip::address& peer, std::string_view credential,
                                       time_point now) {
    if (!limits_failures_.load(std::memory_order_relaxed)) return {};
    const address_key key = key_of(peer);
    shard& own = shard_of(key);
    bucket_level level;
    {
        const std::lock_guard lock(own.mutex);
        const address_entry& entry = own.addresses.find_or_add(key);
        level = entry.failures.level(own.failures, now);
        if (level.admitted) return {};
        const auto& known = entry.valid_credentials;
        if (std::ranges::find(known, hash_of(credential), &valid_credential::credential) != known.end()) return {};
    }
    count_refusal(refusal::failed_authentications);
    return too_many("Too many credentials from this address were not valid; this one was not checked.",
                    level.retry_after);
}

void limiter::note_valid_credential(const boost::asio::ip::address& peer, std::string_view credential,
                                    std::string_view principal) {
    if (!limits_failures_.load(std::memory_order_relaxed)) return;
    const address_key key = key_of(peer);
    const valid_credential noted{hash_of(credential), hash_of(principal)};
    shard& own = shard_of(key);
    const std::lock_guard lock(own.mutex);
    auto& known = own.addresses.find_or_add(key).valid_credentials;
    if (std::ranges::find(known, noted.credential, &valid_credential::credential) != known.end()) return;
    if (known.size() >= credentials_max) make_space(known, noted.principal);
    known.push_back(noted);
}

void limiter::make_space(std::vector<valid_credential>& known, std::uint64_t preferred) {
    std::unordered_map<std::uint64_t, std::size_t> counts;
    for (const valid_credential& each : known)
        ++counts[each.principal];
    std::uint64_t has_most = preferred;
    for (const valid_credential& each : known) {
        if (counts[each.principal] > counts[has_most]) has_most = each.principal;
    }
    known.erase(std::ranges::find(known, has_most, &valid_credential::principal));
}

void limiter::note_failed_authentication(const boost::asio::ip::address& peer, std::string_view credential,
                                         time_point now) {
    if (!limits_failures_.load(std::memory_order_relaxed)) return;
    const address_key key = key_of(peer);
    shard& own = shard_of(key);
    const std::lock_guard lock(own.mutex);
    address_entry& entry = own.addresses.find_or_add(key);
    // A key that was removed from the configuration is no longer exempt.
    const std::uint64_t hash = hash_of(credential);
    std::erase_if(entry.valid_credentials, [hash](const valid_credential& known) { return known.credential == hash; });
    entry.failures.take(own.failures, now);
}

result<void> limiter::admit_principal(caller& principal, time_point now, rate_fields& fields, request_class kind) {
    const auto taken = principal.take_request(now, kind);
    if (!taken) return {};
    fields.add(kind == request_class::of_lease ? "principal-leases" : "principal", taken->limit, taken->level);
    if (taken->level.admitted) return {};
    count_refusal(refusal::principal_rate);
    return too_many("This principal sends more requests than limits.principal allows.", taken->level.retry_after);
}

std::shared_ptr<caller> limiter::caller_of(const std::string& principal) {
    const std::lock_guard lock(mutex_);
    const auto is_in_use = [](const std::shared_ptr<caller>& entry) { return entry.use_count() > 1; };
    auto& known = callers_.find_or_add(principal, is_in_use);
    if (!known) {
        known = std::make_shared<caller>(principal);
        known->set_limits(limits_of(limits_, principal), shares_);
    }
    return known;
}

std::shared_ptr<void> limiter::admit_long_request(const std::shared_ptr<caller>& principal,
                                                  const boost::asio::ip::address& peer) {
    struct places {
        place of_principal;
        std::shared_ptr<void> of_all;
    };
    auto out = std::make_shared<places>();
    out->of_principal = place(principal, use::long_requests);
    if (out->of_principal) out->of_all = long_requests_->take_place(peer);
    return out->of_all ? out : nullptr;
}

}  // namespace fencegate::limits
