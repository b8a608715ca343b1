#include <gateway/audit/event_sink.hpp>

#include <gateway/pg/history/history_writer.hpp>
#include <gateway/runtime/background.hpp>
#include <gateway/runtime/random.hpp>

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

namespace fencegate::audit {
namespace {

constexpr std::size_t grant_digits = 12;

/// Returns the member of the history's detail that holds the event's text.
const char* detail_member_of(lockcore::event_kind kind) {
    switch (kind) {
        case lockcore::event_kind::node_quarantined:
        case lockcore::event_kind::node_readmitted:
        case lockcore::event_kind::epoch_raised:
            return "node";
        default:
            return "reason";
    }
}

std::string detail_of(const lockcore::event& e) {
    const auto ttl = e.ttl.count();
    const bool granted = e.kind == lockcore::event_kind::lease_granted;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(e.waited).count();
    if (e.detail.empty()) {
        if (granted) return fmt::format(R"({{"ttl_ms":{},"waited_ms":{}}})", ttl, waited);
        return ttl > 0 ? fmt::format(R"({{"ttl_ms":{}}})", ttl) : std::string();
    }
    boost::json::object detail;
    detail[detail_member_of(e.kind)] = e.detail;
    if (ttl > 0) detail["ttl_ms"] = ttl;
    if (e.kind == lockcore::event_kind::lease_refused) detail["waited_ms"] = waited;
    if (e.kind == lockcore::event_kind::lease_revoked)
        detail["holder"] = {{"principal", e.revoked.principal}, {"owner", e.revoked.owner}};
    return boost::json::serialize(detail);
}

}  // namespace

std::string grant_of(const lockcore::nonce& attempt) {
    return std::string(attempt.str().substr(0, grant_digits));
}

std::string add_sharing(std::string detail, const lockcore::nonce& attempt) {
    std::string members = R"("mode":"shared")";
    if (attempt != lockcore::nonce()) members += R"(,"grant":")" + grant_of(attempt) + '"';
    if (detail.empty()) return '{' + members + '}';
    return detail.insert(1, members + ',');
}

std::vector<history_item> history_items(const lockcore::event& e) {
    history_item item;
    item.at = e.at;
    item.event = lockcore::to_string(e.kind);
    if (lockcore::value_of(e.token) != 0) item.fencing_token = lockcore::value_of(e.token);
    item.initiator.principal = e.actor.principal;
    item.initiator.owner = e.actor.owner;
    set_origin(item.initiator, e.origin);
    item.detail = detail_of(e);

    std::vector<history_item> out;
    out.reserve(std::max<std::size_t>(e.resources.size(), 1));
    const std::size_t exclusive = e.resources.size() - e.shared;
    for (std::size_t i = 0; i < e.resources.size(); ++i) {
        if (i == exclusive) item.detail = add_sharing(std::move(item.detail), e.attempt_id);
        out.push_back(item);
        out.back().resource = e.resources[i].str();
    }
    if (out.empty()) out.push_back(std::move(item));
    return out;
}

bool event_buffer::add(std::vector<history_item> items) {
    const std::lock_guard lock(mutex_);
    if (size_.load(std::memory_order_relaxed) + items.size() > cfg_.buffer_max) {
        dropped_.fetch_add(items.size(), std::memory_order_relaxed);
        return false;
    }
    for (const history_item& item : items) {
        if (!item.initiator.principal.empty()) by_principal_.add(item.initiator.principal);
    }
    std::move(items.begin(), items.end(), std::back_inserter(items_));
    size_.fetch_add(items.size(), std::memory_order_relaxed);
    return true;
}

bool event_buffer::add_low_priority(history_item item) {
    const std::lock_guard lock(mutex_);
    if (size_.load(std::memory_order_relaxed) >= cfg_.buffer_max / 16) return false;
    if (!item.initiator.principal.empty()) by_principal_.add(item.initiator.principal);
    items_.push_back(std::move(item));
    size_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

history_batch event_buffer::take(std::size_t count_max) {
    history_batch out;
    out.stream = stream_;
    const std::lock_guard lock(mutex_);
    const auto last = items_.begin() + static_cast<std::ptrdiff_t>(std::min(count_max, items_.size()));
    out.first_sequence = next_sequence_;
    out.items.assign(std::make_move_iterator(items_.begin()), std::make_move_iterator(last));
    items_.erase(items_.begin(), last);
    for (const history_item& item : out.items) {
        if (!item.initiator.principal.empty()) by_principal_.remove(item.initiator.principal);
    }
    next_sequence_ += out.items.size();
    return out;
}

void event_buffer::finish_lost(std::size_t count) {
    finish_written(count);
    dropped_.fetch_add(count, std::memory_order_relaxed);
}

bool event_buffer::is_nearly_full() const {
    return size() >= cfg_.buffer_max - cfg_.buffer_max / 8;
}

std::size_t event_buffer::share_max() const {
    return share_of(cfg_.buffer_max - cfg_.buffer_max / 8);
}

bool event_buffer::must_refuse_leases(const std::string& principal) const {
    if (cfg_.when_full != on_full::refuse) return false;
    if (is_nearly_full()) return true;
    if (principal.empty() || size() < share_max()) return false;
    const std::lock_guard lock(mutex_);
    return by_principal_.used_by(principal) >= share_max();
}

namespace {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;

/// Maximum number of rows of one statement.
constexpr std::size_t rows_max = 2'000;
constexpr std::chrono::milliseconds append_timeout{10'000};
constexpr std::chrono::milliseconds backoff_min{100};
constexpr std::chrono::milliseconds backoff_max{5'000};
/// Least pause between two batches unless the buffer has a full batch: each batch costs a commit, whatever its size.
constexpr std::chrono::milliseconds batch_pause{20};
/// How often flush() checks whether everything is written.
constexpr std::chrono::milliseconds flush_interval{5};

/// Whether the content of the rows is at fault; otherwise they may succeed later.
bool is_fault_of_rows(const failure& f) {
    return f.code == errc::unprocessable || f.code == errc::constraint_violation;
}

}  // namespace

/// Shared with the writing coroutine, which may end after the sink.
struct event_sink::impl : std::enable_shared_from_this<event_sink::impl> {
    impl(audit_config cfg, std::string name, pg::database& d, asio::io_context& i)
        : gateway(std::move(name)),
          own_origin(boost::json::serialize(boost::json::object{{"gateway", gateway}})),
          buffer(cfg, runtime::uuid_v7()),
          database(d),
          io(i),
          wake_timer(i) {}

    /// Sets the origin of an item that no request has caused.
    void complete(history_item& item) const {
        if (item.initiator.origin.empty()) item.initiator.origin = own_origin;
    }

    void enqueue(std::vector<history_item> items) {
        for (auto& item : items)
            complete(item);
        const bool added = buffer.add(std::move(items));
        if (!added && !loss_logged.exchange(true))
            spdlog::error("the buffer for history events is full; events are lost");
        if (started.load()) wake_writer();
    }

    /// Wakes the writing coroutine, from any thread, with one message for any number of events.
    void wake_writer() {
        if (wake_requested.exchange(true)) return;
        asio::post(io, [self = shared_from_this()] { self->wake_timer.cancel(); });
    }

    /// Waits until wake_writer() is called or `timeout` has passed. Runs on `io`.
    asio::awaitable<void> wait_for_events(clock::duration timeout) {
        wake_timer.expires_after(timeout);
        if (!wake_requested.load()) {
            boost::system::error_code ignored;
            co_await wake_timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        }
        wake_requested.store(false);
    }

    using batch_ptr = std::shared_ptr<const history_batch>;

    /// Sends a batch until PostgreSQL accepts or refuses it. Its rows keep their numbers, so that sending it again adds
    /// only the missing rows.
    ///
    /// Errors: a failure that a repetition can't cure, or any failure while the sink is stopping.
    asio::awaitable<result<void>> append(batch_ptr batch) {
        auto backoff = std::chrono::milliseconds(0);
        for (bool sent_before = false;; sent_before = true) {
            const auto until = clock::now() + append_timeout;
            auto add = [batch](pg::session_slot& slot) { return pg::append_history(slot, *batch); };
            auto done = co_await database.run_once<std::size_t>(pg::worker_choice::any_worker(), until, std::move(add));
            if (done) {
                // Rows that were not added are of an earlier attempt; without one, of a second sender of this stream.
                if (*done != batch->items.size() && !sent_before)
                    spdlog::warn("of {} events {} were in the history already", batch->items.size(),
                                 batch->items.size() - *done);
                co_return result<void>();
            }
            if (stopping || is_fault_of_rows(done.error())) co_return done.error();
            // After a broken connection it tries again at once and then after backoff_min; only while PostgreSQL is
            // unreachable the pauses grow.
            const bool broke = done.error().outcome_unknown;
            if (backoff > backoff.zero()) co_await pause_before_retry(broke ? backoff_min : backoff);
            if (stopping) co_return done.error();
            backoff = std::clamp(broke ? backoff : backoff * 2, backoff_min, backoff_max);
        }
    }

    /// Tries the rows of a batch one by one: PostgreSQL refused the batch for the content of a row, which must not stop
    /// the other rows.
    asio::awaitable<void> append_one_by_one(batch_ptr batch) {
        for (std::size_t i = 0; i < batch->items.size() && !stopping; ++i) {
            const auto single = std::make_shared<history_batch>();
            single->stream = batch->stream;
            single->first_sequence = batch->first_sequence + i;
            single->items.push_back(batch->items[i]);
            const auto done = co_await append(single);
            if (done) {
                buffer.finish_written(1);
            } else if (!stopping) {
                spdlog::error("an event {} can't be written to the history: {}", single->items.front().event,
                              done.error().detail);
                buffer.finish_lost(1);
            }
        }
    }

    static asio::awaitable<void> write_all(std::shared_ptr<impl> self) {
        while (!self->stopping) {
            const auto batch = std::make_shared<const history_batch>(self->buffer.take(rows_max));
            if (batch->items.empty()) {
                self->loss_logged = false;
                co_await self->wait_for_events(std::chrono::hours(1));
                continue;
            }
            const auto done = co_await self->append(batch);
            if (self->stopping) break;
            if (done) {
                self->buffer.finish_written(batch->items.size());
            } else {
                co_await self->append_one_by_one(batch);
            }
            if (!self->flushing && self->buffer.size() < rows_max) {
                asio::steady_timer timer(self->io, batch_pause);
                co_await timer.async_wait(asio::use_awaitable);
            }
        }
    }

    /// Waits for `duration`, whatever events arrive; flush() shortens the wait to backoff_min.
    asio::awaitable<void> pause_before_retry(clock::duration duration) {
        asio::steady_timer timer(io);
        const auto end = clock::now() + duration;
        do {
            timer.expires_after(backoff_min);
            co_await timer.async_wait(asio::use_awaitable);
        } while (!stopping && !flushing && clock::now() < end);
    }

    const std::string gateway, own_origin;
    event_buffer buffer;
    pg::database& database;
    asio::io_context& io;
    asio::steady_timer wake_timer;
    std::atomic<bool> wake_requested{false};
    std::atomic<bool> started{false};
    std::atomic<bool> stopping{false};
    std::atomic<bool> flushing{false};
    std::atomic<bool> loss_logged{false};
};

event_sink::event_sink(audit_config cfg, std::string gateway, pg::database& database, asio::io_context& io)
    : impl_(std::make_shared<impl>(cfg, std::move(gateway), database, io)) {}

event_sink::~event_sink() {
    impl_->stopping = true;
    if (impl_->started) impl_->wake_writer();
}

void event_sink::on_event(lockcore::event e) {
    impl_->enqueue(history_items(e));
}

void event_sink::add(history_item item) {
    std::vector<history_item> items;
    items.push_back(std::move(item));
    impl_->enqueue(std::move(items));
}

bool event_sink::add_low_priority(history_item item) {
    impl_->complete(item);
    const bool added = impl_->buffer.add_low_priority(std::move(item));
    if (added && impl_->started.load()) impl_->wake_writer();
    return added;
}

const std::string& event_sink::gateway() const {
    return impl_->gateway;
}

const event_buffer& event_sink::buffer() const {
    return impl_->buffer;
}

void event_sink::start() {
    if (impl_->started.exchange(true)) return;
    runtime::run_in_background(impl_->io.get_executor(), impl::write_all(impl_));
}

asio::awaitable<bool> event_sink::flush(std::chrono::steady_clock::time_point until) {
    const auto state = impl_;
    const auto executor = co_await asio::this_coro::executor;
    asio::steady_timer timer(executor);
    state->flushing = true;
    while (state->buffer.size() > 0 && clock::now() < until) {
        timer.expires_after(flush_interval);
        co_await timer.async_wait(asio::use_awaitable);
    }
    state->flushing = false;
    co_return state->buffer.size() == 0;
}

}  // namespace fencegate::audit
