#include <gateway/audit/event_buffer.hpp>
#include <gateway/audit/event_items.hpp>
#include <gateway/audit/event_sink.hpp>
#include <gateway/runtime/random.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <atomic>
#include <utility>

namespace fencegate::audit {
namespace {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;

/// Most rows of one statement.
constexpr std::size_t batch_max = 2'000;
constexpr std::chrono::milliseconds append_timeout{10'000};
constexpr std::chrono::milliseconds backoff_min{100};
constexpr std::chrono::milliseconds backoff_max{5'000};
/// Least pause between two batches, but for a full one: each is a commit, whatever is in it.
constexpr std::chrono::milliseconds batch_pause{5};
/// How often flush looks whether all is written.
constexpr std::chrono::milliseconds flush_interval{5};

/// Whether the same rows may do better later; the rest is a fault of the rows.
bool worth_repeating(const failure& f) {
    switch (f.code) {
        case errc::storage_unavailable:
        case errc::overloaded:
        case errc::write_conflict:
        case errc::shutting_down:
            return true;
        default:
            return false;
    }
}

}  // namespace

/// Shared with the writing coroutine, which may end after the sink.
struct event_sink::impl : std::enable_shared_from_this<event_sink::impl> {
    impl(audit_config cfg, pg::history_executor& h, asio::io_context& i)
        : buffer(cfg, runtime::uuid_v7()), history(h), io(i), bell(i) {}

    void keep(std::vector<history_item> items) {
        const bool kept = buffer.add(std::move(items));
        if (!kept && !told_of_loss.exchange(true))
            spdlog::error("the buffer for history events is full; events are lost");
        if (started.load()) ring();
    }

    /// Wakes the writer, from any thread, with one message however many events come.
    void ring() {
        if (rung.exchange(true)) return;
        asio::post(io, [self = shared_from_this()] { self->bell.cancel(); });
    }

    /// Waits for the bell. On `io`.
    asio::awaitable<void> pause(clock::duration most) {
        bell.expires_after(most);
        if (!rung.load()) {
            boost::system::error_code ignored;
            co_await bell.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        }
        rung.store(false);
    }

    using batch_ptr = std::shared_ptr<const history_batch>;

    /// Sends a batch until it is answered. The failure is one that repeating does not cure, unless the sink is going. A
    /// batch keeps its numbers, so that sending it again adds what is missing and nothing else.
    asio::awaitable<result<void>> append(batch_ptr batch) {
        auto backoff = std::chrono::milliseconds(0);
        for (;;) {
            const auto until = clock::now() + append_timeout;
            auto done = co_await history.append(batch, until);
            if (done) {
                // Another number than it should be can only come of a second sender in this stream.
                if (*done != batch->items.size() && backoff == backoff.zero())
                    spdlog::warn("of {} events {} were in the history already", batch->items.size(),
                                 batch->items.size() - *done);
                co_return result<void>();
            }
            if (stopping || !worth_repeating(done.error())) co_return done.error();
            // A connection that broke is made anew at once, and again after a moment; only a PostgreSQL that is away is
            // asked less and less often.
            const bool broke = done.error().outcome_unknown;
            if (backoff > backoff.zero()) co_await wait_out(broke ? backoff_min : backoff);
            if (stopping) co_return done.error();
            backoff = std::clamp(broke ? backoff : backoff * 2, backoff_min, backoff_max);
        }
    }

    /// A batch that PostgreSQL refuses for what is in it must not stop those behind it: its rows are tried one by one.
    asio::awaitable<void> append_singly(batch_ptr batch) {
        for (std::size_t i = 0; i < batch->items.size() && !stopping; ++i) {
            const auto one = std::make_shared<history_batch>();
            one->stream = batch->stream;
            one->first_sequence = batch->first_sequence + i;
            one->items.push_back(batch->items[i]);
            const auto done = co_await append(one);
            if (done) {
                buffer.written(1);
            } else if (!stopping) {
                spdlog::error("an event {} can't be written to the history: {}", one->items.front().event,
                              done.error().detail);
                buffer.lost(1);
            }
        }
    }

    static asio::awaitable<void> write_all(std::shared_ptr<impl> self) {
        while (!self->stopping) {
            const auto batch = std::make_shared<const history_batch>(self->buffer.take(batch_max));
            if (batch->items.empty()) {
                self->told_of_loss = false;
                co_await self->pause(std::chrono::hours(1));
                continue;
            }
            const auto done = co_await self->append(batch);
            if (self->stopping) break;
            if (done) {
                self->buffer.written(batch->items.size());
            } else {
                co_await self->append_singly(batch);
            }
            if (!self->hurry && self->buffer.size() < batch_max) {
                asio::steady_timer more(self->io, batch_pause);
                co_await more.async_wait(asio::use_awaitable);
            }
        }
    }

    /// A pause that new events do not shorten; a flush does, down to one step.
    asio::awaitable<void> wait_out(clock::duration most) {
        asio::steady_timer nap(io);
        const auto end = clock::now() + most;
        do {
            nap.expires_after(backoff_min);
            co_await nap.async_wait(asio::use_awaitable);
        } while (!stopping && !hurry && clock::now() < end);
    }

    event_buffer buffer;
    pg::history_executor& history;
    asio::io_context& io;
    asio::steady_timer bell;
    std::atomic<bool> rung{false};
    std::atomic<bool> started{false};
    std::atomic<bool> stopping{false};
    std::atomic<bool> hurry{false};
    std::atomic<bool> told_of_loss{false};
};

event_sink::event_sink(audit_config cfg, pg::history_executor& history, asio::io_context& io)
    : impl_(std::make_shared<impl>(cfg, history, io)) {}

event_sink::~event_sink() {
    impl_->stopping = true;
    if (impl_->started) impl_->ring();
}

void event_sink::on_event(lockcore::event e) {
    impl_->keep(history_items(e));
}

void event_sink::add(history_item item) {
    std::vector<history_item> one;
    one.push_back(std::move(item));
    impl_->keep(std::move(one));
}

bool event_sink::full() const {
    return impl_->buffer.full();
}

bool event_sink::nearly_full() const {
    return impl_->buffer.nearly_full();
}

std::uint64_t event_sink::dropped() const {
    return impl_->buffer.dropped();
}

std::size_t event_sink::size() const {
    return impl_->buffer.size();
}

void event_sink::start() {
    if (impl_->started.exchange(true)) return;
    asio::co_spawn(impl_->io, impl::write_all(impl_), asio::detached);
}

asio::awaitable<bool> event_sink::flush(std::chrono::steady_clock::time_point until) {
    const auto state = impl_;
    const auto executor = co_await asio::this_coro::executor;
    asio::steady_timer timer(executor);
    state->hurry = true;
    while (state->buffer.size() > 0 && clock::now() < until) {
        timer.expires_after(flush_interval);
        co_await timer.async_wait(asio::use_awaitable);
    }
    state->hurry = false;
    co_return state->buffer.size() == 0;
}

}  // namespace fencegate::audit
