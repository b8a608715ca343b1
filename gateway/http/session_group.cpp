#include <gateway/http/session_group.hpp>

#include <gateway/http/rfc3339.hpp>
#include <gateway/http/session.hpp>

#include <poll.h>

#include <algorithm>

namespace fencegate::http {

bool connection_count::try_add() {
    const std::lock_guard lock(mutex_);
    if (value_ >= highest_) return false;
    ++value_;
    return true;
}

void connection_count::remove() {
    const std::lock_guard lock(mutex_);
    if (--value_ == 0) none_left_.notify_all();
}

std::size_t connection_count::value() const {
    const std::lock_guard lock(mutex_);
    return value_;
}

bool connection_count::wait_for_none(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    return none_left_.wait_until(lock, until, [this] { return value_ == 0; });
}

session_group::session_group(boost::asio::io_context& io, http_config cfg, std::shared_ptr<const dispatcher> routes,
                             std::shared_ptr<connection_count> connections, request_observer& observer)
    : config_(std::move(cfg)),
      routes_(std::move(routes)),
      connections_(std::move(connections)),
      observer_(observer),
      executor_(io.get_executor()),
      sweep_timer_(executor_),
      hang_up_timer_(executor_) {}

void session_group::start() {
    schedule_sweep();
}

void session_group::serve(tcp_socket socket) {
    session::start(std::make_shared<session>(std::move(socket), shared_from_this()));
}

void session_group::close_idle() {
    closing_ = true;
    // Ending a stream may end its session and so change the list.
    const std::vector<session*> all = sessions_;
    for (session* s : all) {
        if (std::ranges::find(sessions_, s) != sessions_.end()) s->wind_up();
    }
}

void session_group::cancel_all() {
    closing_ = true;
    // Cancelling may end a session at once and so change the list.
    const std::vector<session*> all = sessions_;
    for (session* s : all) {
        if (std::ranges::find(sessions_, s) != sessions_.end()) s->cancel();
    }
}

void session_group::close_all() {
    sweep_timer_.cancel();
    for (session* s : sessions_)
        s->close();
}

std::string_view session_group::date(std::chrono::steady_clock::time_point now) {
    if (date_.empty() || now - date_made_ >= std::chrono::seconds(1)) {
        date_ = to_http_date(std::chrono::system_clock::now());
        date_made_ = now;
    }
    return date_;
}

void session_group::add(session& s) {
    s.group_index_ = sessions_.size();
    sessions_.push_back(&s);
}

void session_group::remove(session& s) {
    end_waiting(s);
    sessions_.back()->group_index_ = s.group_index_;
    std::swap(sessions_[s.group_index_], sessions_.back());
    sessions_.pop_back();
    connections_->remove();
}

void session_group::begin_waiting(session& s) {
    s.waiting_index_ = waiting_.size();
    waiting_.push_back(&s);
    if (!hang_up_check_scheduled_) schedule_hang_up_check();
}

void session_group::end_waiting(session& s) {
    if (!s.waiting_index_) return;
    waiting_.back()->waiting_index_ = s.waiting_index_;
    std::swap(waiting_[*s.waiting_index_], waiting_.back());
    waiting_.pop_back();
    s.waiting_index_.reset();
}

void session_group::schedule_sweep() {
    using std::chrono::milliseconds;
    const milliseconds interval =
        std::clamp(milliseconds(config_.idle_timeout / 4), milliseconds(100), milliseconds(1'000));
    sweep_timer_.expires_after(interval);
    sweep_timer_.async_wait([self = weak_from_this()](const boost::system::error_code& ec) {
        const auto group = self.lock();
        if (ec || !group) return;
        group->sweep();
        group->schedule_sweep();
    });
}

void session_group::sweep() {
    const auto now = std::chrono::steady_clock::now();
    // Closing only posts: the list does not change under the loop.
    for (session* s : sessions_)
        s->close_if_stale(now);
}

void session_group::schedule_hang_up_check() {
    hang_up_check_scheduled_ = true;
    hang_up_timer_.expires_after(hang_up_interval);
    hang_up_timer_.async_wait([self = weak_from_this()](const boost::system::error_code& ec) {
        const auto group = self.lock();
        if (ec || !group) return;
        group->hang_up_check_scheduled_ = false;
        group->check_hang_ups();
        if (!group->waiting_.empty()) group->schedule_hang_up_check();
    });
}

/// One poll() over all waiting connections: a request that is answered within the interval costs no system call, and
/// bytes of a pipelined request do not hide the end of the stream, as they would from a read.
void session_group::check_hang_ups() {
    std::vector<pollfd> sockets;
    sockets.reserve(waiting_.size());
    for (session* s : waiting_)
        sockets.push_back({s->native_handle(), POLLRDHUP, 0});
    if (sockets.empty() || ::poll(sockets.data(), sockets.size(), 0) <= 0) return;
    std::vector<session*> gone;
    for (std::size_t i = 0; i < sockets.size(); ++i) {
        if (sockets[i].revents != 0) gone.push_back(waiting_[i]);
    }
    for (session* s : gone) {
        // Cancelling one may end another, where both wait for the same thing.
        if (std::ranges::find(waiting_, s) != waiting_.end()) s->hang_up();
    }
}

}  // namespace fencegate::http
