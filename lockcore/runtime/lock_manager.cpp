#include <lockcore/encoding.hpp>
#include <lockcore/lock_manager.hpp>

#include <lockcore/types.hpp>
#include <proto/lease_id.hpp>
#include <runtime/shard.hpp>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace lockcore {
namespace asio = boost::asio;

struct lock_manager::impl {
    impl(config c, std::vector<asio::io_context*> ios, dependencies d)
        : cfg(std::move(c)), deps(d), reported(cfg.nodes.size(), node_state::unreachable) {
        for (std::size_t i = 0; i < ios.size(); ++i) {
            shards.push_back(
                std::make_unique<shard>(cfg, *ios[i], deps, i == 0, [this](node_index node) { report_state(node); }));
        }
    }
    shard& shard_of(const resource_name& r) { return *shards[r.hash() % shards.size()]; }

    /// Returns the worst status of a node over all shards; node_state is ordered from worst to best.
    node_status status_of(node_index node) const {
        node_status worst = shards.front()->status_of(node);
        for (std::size_t i = 1; i < shards.size(); ++i) {
            node_status other = shards[i]->status_of(node);
            if (other.state < worst.state) worst = std::move(other);
        }
        return worst;
    }

    /// Reports a node's state if it differs from the one reported last.
    void report_state(node_index node) {
        const std::lock_guard lock(reported_mutex);
        const node_status status = status_of(node);
        node_state& reported_state = reported[value_of(node)];
        if (status.state == reported_state) return;
        const node_state old_state = std::exchange(reported_state, status.state);
        deps.events.on_node_change({status.name, old_state, status.state, status.detail});
    }

    config cfg;
    dependencies deps;
    std::vector<std::unique_ptr<shard>> shards;
    std::mutex reported_mutex;  ///< Held during a report, so that reports are in order.
    std::vector<node_state> reported;
};

namespace {

/// Runs `work` on the thread of `io` and returns to the caller's executor. A cancellation of the caller is passed on.
/// Not a template: each instance of co_spawn takes the compiler about a second.
asio::awaitable<void> await_on_thread(asio::io_context& io, asio::awaitable<void> work) {
    auto start = [&io, &work](auto handler) {
        // A signal is not safe across threads: the coroutine on the shard gets its own, emitted on its own thread.
        auto signal = std::make_shared<asio::cancellation_signal>();
        auto slot = asio::get_associated_cancellation_slot(handler);
        if (slot.is_connected()) {
            slot.assign([signal, &io](asio::cancellation_type type) {
                asio::post(io, [signal, type] { signal->emit(type); });
            });
        }
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        auto finish = [shared, signal](std::exception_ptr error) {
            auto executor = asio::get_associated_executor(*shared);
            asio::post(executor, [shared, error = std::move(error)] { std::move (*shared)(error); });
        };
        asio::co_spawn(io, std::move(work), asio::bind_cancellation_slot(signal->slot(), std::move(finish)));
    };
    co_return co_await asio::async_initiate<const asio::use_awaitable_t<>, void(std::exception_ptr)>(
        std::move(start), asio::use_awaitable);
}

/// Runs `work` and stores its result.
template <class T>
asio::awaitable<void> store_result(asio::awaitable<T> work, std::optional<T>& out) {
    out.emplace(co_await std::move(work));
}

template <class T>
asio::awaitable<T> run_on_thread(asio::io_context& io, asio::awaitable<T> work) {
    const asio::any_io_executor caller_executor = co_await asio::this_coro::executor;
    if (caller_executor == asio::any_io_executor(io.get_executor())) co_return co_await std::move(work);
    std::optional<T> out;  // safe: the handler that `work` calls at its end owns this frame
    co_await await_on_thread(io, store_result(std::move(work), out));
    co_return std::move(*out);
}

/// Does the same as run_on_thread; if the caller is on the shard's thread, it adds no coroutine frame.
template <class T>
asio::awaitable<T> run_on_shard(shard& s, asio::awaitable<T> work) {
    if (s.io().get_executor().running_in_this_thread()) return work;
    return run_on_thread(s.io(), std::move(work));
}

template <class T>
asio::awaitable<result<T>> reject(std::string reason) {
    co_return make_failure(errc::invalid_argument, reason);
}

constexpr const char* no_resource = "a lease covers at least one resource";
constexpr const char* ttl_bounds = "ttl must be 100 ms to max_ttl";

bool is_plain(std::string_view text) {
    return text.size() <= holder_bytes_max && !has_control_character(text);
}

std::string find_invalid_argument(const acquire_request& request, const config& cfg) {
    std::vector<resource_name> names = all_resources(request);
    if (names.empty() || names.size() > resources_max)
        return "a lease covers 1 to " + std::to_string(resources_max) + " resources";
    if (names_bytes(names) > names_bytes_max)
        return "the names of a lease have at most " + std::to_string(names_bytes_max) + " bytes together";
    std::ranges::sort(names);
    if (std::ranges::adjacent_find(names) != names.end()) return "a request names each resource once";
    if (request.ttl < ttl_min || request.ttl > cfg.max_ttl) return ttl_bounds;
    if (request.wait < milliseconds{0} || request.wait > cfg.max_wait) return "wait must be 0 to max_wait";
    if (!is_plain(request.holder.principal) || !is_plain(request.holder.owner))
        return "principal and owner have at most 128 bytes and no control characters";
    return {};
}

}  // namespace

lock_manager::lock_manager(config cfg, std::vector<asio::io_context*> shards, dependencies deps)
    : impl_(std::make_unique<impl>(std::move(cfg), std::move(shards), deps)) {}

lock_manager::~lock_manager() = default;

void lock_manager::start() {
    for (const auto& s : impl_->shards)
        asio::post(s->io(), [shard = s.get()] { shard->open(); });
}

void lock_manager::refuse_new_leases() {
    for (const auto& s : impl_->shards)
        asio::post(s->io(), [shard = s.get()] { shard->refuse_new_leases(); });
}

void lock_manager::stop() {
    for (const auto& s : impl_->shards) {
        if (s->io().get_executor().running_in_this_thread()) {
            s->close();
            continue;
        }
        std::promise<void> closed;
        asio::post(s->io(), [shard = s.get(), &closed] {
            shard->close();
            closed.set_value();
        });
        closed.get_future().wait();
    }
}

// These functions are no coroutines: many calls may wait at the same time, and each coroutine would add a frame.

asio::awaitable<result<lease>> lock_manager::acquire(acquire_request request) {
    std::ranges::sort(request.resources);
    std::ranges::sort(request.shared);
    if (request.ttl == milliseconds{0}) request.ttl = impl_->cfg.default_ttl;
    if (std::string fault = find_invalid_argument(request, impl_->cfg); !fault.empty())
        return reject<lease>(std::move(fault));
    shard& s = impl_->shard_of(first_resource(request));
    return run_on_shard(s, s.call<result<lease>>(input::acquire{{}, std::move(request)}));
}

asio::awaitable<result<lease>> lock_manager::renew(lease_claims claims, milliseconds ttl, std::string origin) {
    if (has_no_resource(claims)) return reject<lease>(no_resource);
    if (ttl < ttl_min || ttl > impl_->cfg.max_ttl) return reject<lease>(ttl_bounds);
    shard& s = impl_->shard_of(first_resource(claims));
    return run_on_shard(s, s.call<result<lease>>(input::renew{{}, std::move(claims), ttl, std::move(origin)}));
}

asio::awaitable<result<lease>> lock_manager::inspect(lease_claims claims) {
    if (has_no_resource(claims)) return reject<lease>(no_resource);
    shard& s = impl_->shard_of(first_resource(claims));
    return run_on_shard(s, s.call<result<lease>>(input::inspect{{}, std::move(claims)}));
}

asio::awaitable<result<release_outcome>> lock_manager::cancel(acquire_request request) {
    std::ranges::sort(request.resources);
    std::ranges::sort(request.shared);
    if (request.ttl == milliseconds{0}) request.ttl = impl_->cfg.default_ttl;
    std::string fault = find_invalid_argument(request, impl_->cfg);
    if (request.idempotency_key.empty()) fault = "a request is cancelled by its idempotency key";
    if (!fault.empty()) return reject<release_outcome>(std::move(fault));
    shard& s = impl_->shard_of(first_resource(request));
    return run_on_shard(s, s.call<result<release_outcome>>(input::cancel_request{{}, std::move(request)}));
}

asio::awaitable<result<release_outcome>> lock_manager::release(lease_claims claims, std::string origin) {
    if (has_no_resource(claims)) return reject<release_outcome>(no_resource);
    shard& s = impl_->shard_of(first_resource(claims));
    return run_on_shard(s, s.call<result<release_outcome>>(input::release{{}, std::move(claims), std::move(origin)}));
}

asio::awaitable<result<close_outcome>> lock_manager::close_to_new_holds(lease_claims claims) {
    if (has_no_resource(claims)) return reject<close_outcome>(no_resource);
    shard& s = impl_->shard_of(first_resource(claims));
    return run_on_shard(s, s.call<result<close_outcome>>(input::close_to_new_holds{{}, std::move(claims)}));
}

void lock_manager::reopen(lease_claims claims, close_outcome closed) {
    if (has_no_resource(claims)) return;
    shard& s = impl_->shard_of(first_resource(claims));
    asio::post(s.io(), [&s, claims = std::move(claims), closed] { s.reopen(claims, closed); });
}

asio::awaitable<result<release_outcome>> lock_manager::revoke(lease_claims claims, revocation request) {
    if (has_no_resource(claims)) return reject<release_outcome>(no_resource);
    shard& s = impl_->shard_of(first_resource(claims));
    return run_on_shard(
        s, s.call<result<release_outcome>>(input::revoke{
               {}, std::move(claims), std::move(request.actor), std::move(request.reason), std::move(request.origin)}));
}

asio::awaitable<result<keep_step>> lock_manager::keep(kept_lease kept, std::string origin) {
    if (has_no_resource(kept.current.claims)) return reject<keep_step>(no_resource);
    shard& s = impl_->shard_of(first_resource(kept.current.claims));
    return run_on_shard(s, s.call<result<keep_step>>(input::keep{{}, std::move(kept), std::move(origin)}));
}

asio::awaitable<result<watch_step>> lock_manager::watch(lease_claims claims, milliseconds longest) {
    if (has_no_resource(claims)) return reject<watch_step>(no_resource);
    shard& s = impl_->shard_of(first_resource(claims));
    return run_on_shard(s, s.call<result<watch_step>>(input::watch{{}, std::move(claims), longest}));
}

asio::awaitable<result<std::optional<live_lease>>> lock_manager::find_lease(resource_name resource,
                                                                            std::optional<nonce> sharing) {
    shard& s = impl_->shard_of(resource);
    return run_on_shard(s, s.find_lease(std::move(resource), sharing));
}

asio::awaitable<result<resource_leases>> lock_manager::find_leases(resource_name resource, std::size_t limit) {
    shard& s = impl_->shard_of(resource);
    return run_on_shard(s, s.find_leases(std::move(resource), limit));
}

asio::awaitable<result<lease_page>> lock_manager::list_leases(lease_query query) {
    shard& s = *impl_->shards.front();
    return run_on_shard(s, s.list_leases(std::move(query)));
}

asio::awaitable<result<leak_report>> lock_manager::find_leaks() {
    shard& s = *impl_->shards.front();
    return run_on_shard(s, s.find_leaks());
}

asio::awaitable<result<floor_announcement>> lock_manager::announce_floor(storage_floor floor) {
    shard& s = *impl_->shards.front();
    return run_on_shard(s, s.call<result<floor_announcement>>(input::announce_floor{{}, std::move(floor)}));
}

void lock_manager::raise_hints(epoch floor) {
    for (const auto& s : impl_->shards)
        asio::post(s->io(), [shard = s.get(), floor] { shard->raise_hints(floor); });
}

asio::awaitable<waiting_overview> lock_manager::list_waiters(std::string prefix, std::size_t limit) {
    waiting_overview out;
    for (const auto& s : impl_->shards) {
        waiting_overview part = co_await run_on_shard(*s, s->list_waiters(prefix));
        out.waiters += part.waiters;
        std::ranges::move(part.resources, std::back_inserter(out.resources));
    }
    // Several shards may have waiters for one resource: a request for several is on the shard of its first resource.
    std::ranges::sort(out.resources, {}, &waiting_count::resource);
    std::vector<waiting_count> merged;
    for (waiting_count& count : out.resources) {
        if (!merged.empty() && merged.back().resource == count.resource) {
            merged.back().waiters += count.waiters;
        } else {
            merged.push_back(std::move(count));
        }
    }
    std::ranges::stable_sort(merged, std::ranges::greater{}, &waiting_count::waiters);
    if (merged.size() > limit) merged.erase(merged.begin() + static_cast<std::ptrdiff_t>(limit), merged.end());
    out.resources = std::move(merged);
    co_return out;
}

result<lease_claims> lock_manager::verify_lease_id(std::string_view lease_id) const {
    return lockcore::verify_lease_id(lease_id, impl_->cfg.cell, impl_->deps.mac);
}

std::vector<node_status> lock_manager::nodes() const {
    std::vector<node_status> out;
    for (std::size_t n = 0; n < impl_->cfg.nodes.size(); ++n)
        out.push_back(impl_->status_of(static_cast<node_index>(n)));
    return out;
}

std::size_t lock_manager::waiters() const {
    std::size_t out = 0;
    for (const auto& s : impl_->shards)
        out += s->waiters();
    return out;
}

bool lock_manager::has_quorum() const {
    const auto statuses = nodes();
    const auto voting = std::ranges::count(statuses, node_state::voting, &node_status::state);
    return static_cast<std::size_t>(voting) >= majority_of(statuses.size());
}

}  // namespace lockcore
