#include <lockcore/lock_manager.hpp>

#include <proto/lease_id.hpp>
#include <runtime/common.hpp>
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
    shard& of(const resource_name& r) { return *shards[r.hash() % shards.size()]; }

    /// The worst view that any shard has of a node: states are ordered so.
    node_status status_of(node_index node) const {
        node_status worst = shards.front()->status_of(node);
        for (std::size_t i = 1; i < shards.size(); ++i) {
            node_status other = shards[i]->status_of(node);
            if (other.state < worst.state) worst = std::move(other);
        }
        return worst;
    }

    /// Reports a node's state if it is another than the one reported last.
    void report_state(node_index node) {
        const std::lock_guard lock(reported_mutex);
        const node_status now = status_of(node);
        node_state& last = reported[value_of(node)];
        if (now.state == last) return;
        const node_state before = std::exchange(last, now.state);
        deps.events.on_node_change({now.name, before, now.state, now.detail});
    }

    config cfg;
    dependencies deps;
    std::vector<std::unique_ptr<shard>> shards;
    std::mutex reported_mutex;  ///< Held while a change is reported, so that changes come in order.
    std::vector<node_state> reported;
};

namespace {

/// Runs `work` on the shard's thread and comes back. A caller's cancellation is carried over to that thread.
template <class T>
asio::awaitable<T> run_on(asio::io_context& io, asio::awaitable<T> work) {
    const asio::any_io_executor here = co_await asio::this_coro::executor;
    if (here == asio::any_io_executor(io.get_executor())) co_return co_await std::move(work);

    auto start = [&io, &work](auto handler) {
        // Signals are not safe across threads: the shard's coroutine gets one of its own, emitted on its own thread.
        auto signal = std::make_shared<asio::cancellation_signal>();
        auto slot = asio::get_associated_cancellation_slot(handler);
        if (slot.is_connected()) {
            slot.assign([signal, &io](asio::cancellation_type type) {
                asio::post(io, [signal, type] { signal->emit(type); });
            });
        }
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        auto finish = [shared, signal](std::exception_ptr error, T value) {
            auto executor = asio::get_associated_executor(*shared);
            asio::post(executor, [shared, error = std::move(error), v = std::make_shared<T>(std::move(value))] {
                std::move (*shared)(error, std::move(*v));
            });
        };
        asio::co_spawn(io, std::move(work), asio::bind_cancellation_slot(signal->slot(), std::move(finish)));
    };
    co_return co_await asio::async_initiate<const asio::use_awaitable_t<>, void(std::exception_ptr, T)>(
        std::move(start), asio::use_awaitable);
}

/// As run_on, without a frame where the caller is on the shard's thread already.
template <class T>
asio::awaitable<T> on(shard& s, asio::awaitable<T> work) {
    if (s.io().get_executor().running_in_this_thread()) return work;
    return run_on(s.io(), std::move(work));
}

template <class T>
asio::awaitable<result<T>> refused(std::string why) {
    co_return fail(errc::invalid_argument, std::move(why));
}

constexpr const char* no_resource = "a lease covers at least one resource";

bool is_plain(std::string_view text) {
    return text.size() <= holder_bytes_max &&
           std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::string what_is_wrong(const acquire_request& request, const config& cfg) {
    const auto& names = request.resources;
    if (names.empty() || names.size() > resources_max) return "a lease covers 1 to 16 resources";
    if (std::ranges::adjacent_find(names) != names.end()) return "a resource is named twice";
    if (request.ttl < ttl_min || request.ttl > cfg.max_ttl) return "ttl is out of bounds";
    if (request.wait < milliseconds{0} || request.wait > cfg.max_wait) return "wait is out of bounds";
    if (!is_plain(request.by.principal) || !is_plain(request.by.owner))
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

// Plain functions: a call may wait for long, and many may; each coroutine on the way costs a frame.

asio::awaitable<result<lease>> lock_manager::acquire(acquire_request request) {
    std::ranges::sort(request.resources);
    if (request.ttl == milliseconds{0}) request.ttl = impl_->cfg.default_ttl;
    if (std::string wrong = what_is_wrong(request, impl_->cfg); !wrong.empty()) return refused<lease>(std::move(wrong));
    shard& s = impl_->of(request.resources.front());
    return on(s, s.acquire(std::move(request)));
}

asio::awaitable<result<lease>> lock_manager::renew(lease_claims claims, milliseconds ttl, std::string trace_id) {
    if (claims.resources.empty()) return refused<lease>(no_resource);
    if (ttl < ttl_min || ttl > impl_->cfg.max_ttl) return refused<lease>("ttl is out of bounds");
    shard& s = impl_->of(claims.resources.front());
    return on(s, s.renew(std::move(claims), ttl, std::move(trace_id)));
}

asio::awaitable<result<lease>> lock_manager::inspect(lease_claims claims) {
    if (claims.resources.empty()) return refused<lease>(no_resource);
    shard& s = impl_->of(claims.resources.front());
    return on(s, s.inspect(std::move(claims)));
}

asio::awaitable<result<release_outcome>> lock_manager::release(lease_claims claims, std::string trace_id) {
    if (claims.resources.empty()) return refused<release_outcome>(no_resource);
    shard& s = impl_->of(claims.resources.front());
    return on(s, s.release(std::move(claims), std::move(trace_id)));
}

asio::awaitable<result<closing>> lock_manager::close_to_holds(lease_claims claims) {
    if (claims.resources.empty()) return refused<closing>(no_resource);
    shard& s = impl_->of(claims.resources.front());
    return on(s, s.close_to_holds(std::move(claims)));
}

void lock_manager::reopen(lease_claims claims, closing closed) {
    if (claims.resources.empty()) return;
    shard& s = impl_->of(claims.resources.front());
    asio::post(s.io(), [&s, claims = std::move(claims), closed] { s.reopen(claims, closed); });
}

asio::awaitable<result<release_outcome>> lock_manager::revoke(lease_claims claims, revocation why) {
    if (claims.resources.empty()) return refused<release_outcome>(no_resource);
    shard& s = impl_->of(claims.resources.front());
    return on(s, s.revoke(std::move(claims), std::move(why)));
}

asio::awaitable<result<keep_step>> lock_manager::keep(kept_lease kept, std::string trace_id) {
    if (kept.current.claims.resources.empty()) return refused<keep_step>(no_resource);
    shard& s = impl_->of(kept.current.claims.resources.front());
    return on(s, s.keep(std::move(kept), std::move(trace_id)));
}

asio::awaitable<result<std::optional<live_lease>>> lock_manager::look(resource_name resource) {
    shard& s = impl_->of(resource);
    return on(s, s.look(std::move(resource)));
}

asio::awaitable<result<lease_page>> lock_manager::list(lease_query query) {
    shard& s = *impl_->shards.front();
    return on(s, s.list(std::move(query)));
}

asio::awaitable<result<leak_report>> lock_manager::find_leaks() {
    shard& s = *impl_->shards.front();
    return on(s, s.find_leaks());
}

asio::awaitable<waiting_overview> lock_manager::waiting(std::string prefix, std::size_t limit) {
    waiting_overview all;
    for (const auto& s : impl_->shards) {
        waiting_overview part = co_await on(*s, s->waiting(prefix));
        all.waiters += part.waiters;
        std::ranges::move(part.resources, std::back_inserter(all.resources));
    }
    // A resource may be waited for at several shards: beside others, it queues at the shard of the first of them.
    std::ranges::sort(all.resources, {}, &waiting_count::resource);
    std::vector<waiting_count> merged;
    for (waiting_count& one : all.resources) {
        if (!merged.empty() && merged.back().resource == one.resource) {
            merged.back().waiters += one.waiters;
        } else {
            merged.push_back(std::move(one));
        }
    }
    std::ranges::stable_sort(merged, std::ranges::greater{}, &waiting_count::waiters);
    if (merged.size() > limit) merged.erase(merged.begin() + static_cast<std::ptrdiff_t>(limit), merged.end());
    all.resources = std::move(merged);
    co_return all;
}

result<lease_claims> lock_manager::open(std::string_view lease_id) const {
    return open_lease_id(lease_id, impl_->deps.mac);
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
    const auto all = nodes();
    const auto voting =
        std::count_if(all.begin(), all.end(), [](const node_status& n) { return n.state == node_state::voting; });
    return static_cast<std::size_t>(voting) >= majority_of(all.size());
}

}  // namespace lockcore
