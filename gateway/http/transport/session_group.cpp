#include <gateway/http/transport/session_group.hpp>

#include <gateway/http/codec/problem.hpp>
#include <gateway/http/transport/response_head.hpp>
#include <gateway/runtime/log.hpp>
#include <gateway/runtime/random.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>

namespace fencegate::http {

connection_count::decision connection_count::try_add(const address& peer) {
    const std::lock_guard lock(mutex_);
    std::size_t& of_address = by_address_[limits::key_of(peer)];
    if (highest_per_address_ > 0 && of_address >= highest_per_address_) return decision::address_full;
    if (value_ >= highest_) {
        if (of_address == 0) by_address_.erase(limits::key_of(peer));
        return decision::full;
    }
    ++of_address;
    ++value_;
    return decision::admitted;
}

void connection_count::add(const address& peer) {
    const std::lock_guard lock(mutex_);
    ++by_address_[limits::key_of(peer)];
    ++value_;
}

void connection_count::remove(const address& peer) {
    const std::lock_guard lock(mutex_);
    const auto of_address = by_address_.find(limits::key_of(peer));
    if (--of_address->second == 0) by_address_.erase(of_address);
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
                             std::shared_ptr<const tls_context> tls, std::shared_ptr<connection_count> connections,
                             memory_budgets& memory, limits::limiter& limiter, request_observer& observer)
    : config_(std::move(cfg)),
      routes_(std::move(routes)),
      tls_(std::move(tls)),
      connections_(std::move(connections)),
      memory_(memory),
      limiter_(limiter),
      observer_(observer),
      executor_(io.get_executor()),
      sweep_timer_(executor_),
      hang_up_timer_(executor_) {}

void session_group::use(std::shared_ptr<const dispatcher> routes, std::shared_ptr<const tls_context> tls) {
    const bool authorities_changed = tls_ && (!tls || tls->client_authorities() != tls_->client_authorities());
    routes_ = std::move(routes);
    tls_ = std::move(tls);
    end_unaccepted(authorities_changed);
}

void session_group::end_unaccepted(bool authorities_changed) {
    token_keys_ = routes_->token_keys();
    // Ending a stream may destroy its session and change the list.
    const std::vector<group_member*> snapshot = sessions_;
    for (group_member* s : snapshot) {
        if (std::ranges::find(sessions_, s) != sessions_.end()) s->end_unaccepted(*routes_, authorities_changed);
    }
}

void session_group::start() {
    schedule_sweep();
}

bool session_group::replace_one(connection_count::decision reason, const boost::asio::ip::address& peer) {
    const auto now = std::chrono::steady_clock::now();
    const bool of_address = reason == connection_count::decision::address_full;
    using candidate = std::tuple<group_member::loss, std::chrono::steady_clock::time_point, group_member*>;
    std::vector<candidate> candidates;
    for (group_member* s : sessions_) {
        if (of_address && !connection_count::counts_as_same(peer, s->peer())) continue;
        const auto loss = s->loss_by_replacement(now);
        if (loss != group_member::loss::answer) candidates.emplace_back(loss, s->phase_since_, s);
    }
    // Few have unread bytes, so that the heap saves sorting, and asking the kernel about each of them.
    std::ranges::make_heap(candidates, std::greater{});
    while (!candidates.empty()) {
        const auto [loss, since, s] = candidates.front();
        if (loss == group_member::loss::slow_request || !s->has_unread_bytes()) {
            s->close_with(s->may_await_answer() && !tls_ ? make_refusal(reason, s->peer()) : std::string());
            return true;
        }
        std::ranges::pop_heap(candidates, std::greater{});
        candidates.pop_back();
    }
    return false;
}

std::string session_group::make_refusal(connection_count::decision reason, const boost::asio::ip::address& peer) {
    const bool of_address = reason == connection_count::decision::address_full;
    const auto f =
        of_address
            ? make_failure(errc::too_many_requests,
                           "As many connections of this address are open as http.connections_per_address_max allows.")
            : make_failure(errc::overloaded,
                           "As many connections are open as http.connections_max and the limit of open files allow.");
    const std::string request_id = runtime::random_hex128();
    const response answer = problem_response(f, request_id);
    served_request report;
    report.route_path = "-";
    report.request_id = request_id;
    report.status = answer.status;
    report.problem = answer.problem;
    report.reason = answer.problem_detail;
    report.address = peer;
    observer_.on_served(report);

    head_additions add;
    add.request_id = request_id;
    add.date = date(std::chrono::steady_clock::now());
    add.keep_alive = false;
    std::string text;
    render_head(text, answer, add);
    text += answer.body;
    return text;
}

void session_group::refuse(tcp_socket socket, connection_count::decision reason) {
    boost::system::error_code ignored;
    const std::string text = make_refusal(reason, socket.remote_endpoint(ignored).address());
    if (tls_) return;
    socket.non_blocking(true, ignored);
    socket.write_some(boost::asio::buffer(text), ignored);
    socket.shutdown(tcp_socket::shutdown_send, ignored);
    // Closing with unread bytes would send a reset, which can overtake the answer.
    std::array<char, 4096> dropped;
    socket.read_some(boost::asio::buffer(dropped), ignored);
}

bool session_group::reserve_answer(group_member& s, std::size_t bytes, bool required) {
    auto held = std::make_shared<reserved_memory>(memory_.answers, s.principal_);
    if (!held->try_grow(bytes)) {
        close_stalled_members(s.principal_, bytes, required, &s);
        if (!held->try_grow(bytes)) {
            if (!required) return false;
            held->grow(bytes);
        }
    }
    s.answer_memory_ = std::move(held);
    return true;
}

void session_group::close_stalled_members(const std::string& owner, std::size_t bytes, bool include_fast,
                                          const group_member* excluded) {
    const auto now = std::chrono::steady_clock::now();
    std::vector<group_member*> slow;
    for (group_member* member : sessions_) {
        if (member != excluded && member->answer_memory_ && (include_fast || member->is_stalled(now)))
            slow.push_back(member);
    }
    std::ranges::sort(slow, {}, [](const group_member* member) { return member->phase_since_; });
    for (group_member* member : slow) {
        if (memory_.answers.fits(owner, bytes)) return;
        if (member->principal_ != owner && memory_.answers.exceeds_share(owner, bytes)) continue;
        runtime::log(
            spdlog::level::warn,
            "connection closed: http.answers_max_bytes is used up, and its caller has not read its whole answer",
            {{"client", member->client()}});
        member->close();
    }
}

void session_group::close_idle() {
    closing_ = true;
    keeps_alive_ = false;
    // Ending a stream may destroy its session and change the list.
    const std::vector<group_member*> snapshot = sessions_;
    for (group_member* s : snapshot) {
        if (std::ranges::find(sessions_, s) != sessions_.end()) s->begin_shutdown();
    }
}

void session_group::cancel_all() {
    closing_ = true;
    keeps_alive_ = false;
    // Cancelling may destroy a session at once and change the list.
    const std::vector<group_member*> snapshot = sessions_;
    for (group_member* s : snapshot) {
        if (std::ranges::find(sessions_, s) != sessions_.end()) s->cancel();
    }
}

void session_group::close_all() {
    sweep_timer_.cancel();
    for (group_member* s : sessions_)
        s->close();
}

std::string_view session_group::date(std::chrono::steady_clock::time_point now) {
    if (date_.empty() || now - date_made_ >= std::chrono::seconds(1)) {
        date_ = runtime::to_http_date(std::chrono::system_clock::now());
        date_made_ = now;
    }
    return date_;
}

void session_group::add(group_member& s) {
    s.group_index_ = sessions_.size();
    sessions_.push_back(&s);
}

void session_group::remove(group_member& s) {
    end_waiting(s);
    sessions_.back()->group_index_ = s.group_index_;
    std::swap(sessions_[s.group_index_], sessions_.back());
    sessions_.pop_back();
    connections_->remove(s.peer());
}

void session_group::begin_waiting(group_member& s) {
    s.waiting_index_ = waiting_.size();
    waiting_.push_back(&s);
    if (!hang_up_check_scheduled_) schedule_hang_up_check();
}

void session_group::end_waiting(group_member& s) {
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
    // close() only posts completions, so the list does not change during the loop.
    for (group_member* s : sessions_)
        s->close_if_stale(now);
    // A read that was refused memory is made without a session. Its caller retries and finds free memory then.
    if (const auto refused = memory_.answers.latest_refusal(now))
        close_stalled_members(refused->owner, refused->bytes, false, nullptr);
    if (routes_->token_keys() != token_keys_) end_unaccepted(false);
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

/// Calls poll() once for all waiting connections. So a request that is answered within the interval costs no system
/// call, and bytes of a pipelined request do not hide the end of the stream, as they would from a read.
void session_group::check_hang_ups() {
    std::vector<pollfd> sockets;
    sockets.reserve(waiting_.size());
    for (group_member* s : waiting_)
        sockets.push_back({s->native_handle(), POLLRDHUP, 0});
    if (sockets.empty() || ::poll(sockets.data(), sockets.size(), 0) <= 0) return;
    std::vector<group_member*> gone;
    for (std::size_t i = 0; i < sockets.size(); ++i) {
        if (sockets[i].revents != 0) gone.push_back(waiting_[i]);
    }
    for (group_member* s : gone) {
        // Cancelling one request may end another that waits for the same resource.
        if (std::ranges::find(waiting_, s) != waiting_.end()) s->on_hang_up();
    }
}

}  // namespace fencegate::http
