#include <gateway/http/transport/connection_stream.hpp>

#include <gateway/http/transport/tls_channel.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace fencegate::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

}  // namespace

connection_stream::connection_stream(tcp_socket socket, const tls_context* tls) : socket_(std::move(socket)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    if (tls != nullptr) channel_ = std::make_unique<tls_channel>(socket_, tls->make_ssl());
}

connection_stream::~connection_stream() {
    close();
}

asio::awaitable<void> connection_stream::wait_for_socket(tcp_socket::wait_type event, error_code& ec) {
    // A cancelled stream may still send its last piece, so cancellation of a handler does not end this wait.
    co_await socket_.async_wait(
        event, asio::bind_cancellation_slot(asio::cancellation_slot(), asio::redirect_error(asio::use_awaitable, ec)));
}

asio::awaitable<void> connection_stream::flush(error_code& ec) {
    while (channel_->unsent() > 0) {
        if (!channel_->send_unsent()) ec = asio::error::connection_reset;
        if (ec || channel_->unsent() == 0) co_return;
        co_await wait_for_socket(tcp_socket::wait_write, ec);
        if (ec) co_return;
    }
}

asio::awaitable<bool> connection_stream::is_plain_http() {
    error_code ec;
    co_await wait_for_socket(tcp_socket::wait_read, ec);
    char first = '\0';
    if (ec || ::recv(socket_.native_handle(), &first, 1, MSG_PEEK) != 1) co_return false;
    // A record of TLS begins with a small number, a request with a method in capital letters.
    co_return first >= 'A' && first <= 'Z';
}

asio::awaitable<connection_stream::handshake_result> connection_stream::accept_tls() {
    const bool plain = co_await is_plain_http();
    if (plain) {
        channel_.reset();
        co_return handshake_result::plain_http;
    }
    error_code ec;
    for (;;) {
        if (!socket_.is_open()) co_return handshake_result::failed;
        const auto progress = channel_->accept();
        co_await flush(ec);
        if (ec) co_return handshake_result::failed;
        if (progress == tls_channel::progress::done) {
            certificate_ = channel_->peer_certificate();
            co_return handshake_result::done;
        }
        if (progress != tls_channel::progress::needs_input) co_return handshake_result::failed;
        co_await wait_for_socket(tcp_socket::wait_read, ec);
        if (ec) co_return handshake_result::failed;
    }
}

bool connection_stream::has_buffered_input() const {
    return channel_ && channel_->has_buffered_input();
}

asio::awaitable<std::size_t> connection_stream::read_some(asio::mutable_buffer target, error_code& ec) {
    std::size_t count = 0;
    if (channel_) {
        count = co_await read_decrypted(target, ec);
    } else {
        count = co_await socket_.async_read_some(target, asio::redirect_error(asio::use_awaitable, ec));
    }
    co_return count;
}

asio::awaitable<std::size_t> connection_stream::read_decrypted(asio::mutable_buffer target, error_code& ec) {
    // Otherwise a peer that sends without a pause could keep the thread from its other connections.
    co_await asio::post(socket_.get_executor(), asio::use_awaitable);
    while (!ec) {
        std::size_t count = 0;
        const auto progress = socket_.is_open() ? channel_->read(target, count) : tls_channel::progress::ended;
        if (progress == tls_channel::progress::done) co_return count;
        if (progress != tls_channel::progress::needs_input) {
            ec = asio::error::eof;
            co_return 0;
        }
        // Reading can make TLS answer. That is sent before more is read, so that the answers do not accumulate.
        co_await flush(ec);
        if (!ec) co_await wait_for_socket(tcp_socket::wait_read, ec);
    }
    co_return 0;
}

bool connection_stream::has_unread_input() {
    error_code ec;
    return has_buffered_input() || socket_.available(ec) > 0;
}

std::optional<std::size_t> connection_stream::try_write(const message_parts& parts) {
    if (!channel_) {
        error_code ec;
        const std::size_t sent = socket_.write_some(parts, ec);
        if (ec == asio::error::would_block) return 0;
        if (ec) return std::nullopt;
        return sent;
    }
    if (!socket_.is_open() || !channel_->send_unsent()) return std::nullopt;
    // What is encrypted cannot be replaced any more: an answer that may expire while it waits must not be, too early.
    if (!is_writable()) return 0;
    std::array<char, tls_channel::record_max> record;
    std::size_t accepted = 0;
    message_parts left = parts;
    while (channel_->unsent() == 0) {
        const std::size_t size = asio::buffer_copy(asio::buffer(record), left);
        if (size == 0) break;
        if (!channel_->write({record.data(), size})) return std::nullopt;
        accepted += size;
        std::size_t taken = size;
        for (asio::const_buffer& part : left) {
            const std::size_t of_part = std::min(taken, part.size());
            part += of_part;
            taken -= of_part;
        }
    }
    return accepted;
}

std::size_t connection_stream::unsent() const {
    return channel_ ? channel_->unsent() : 0;
}

asio::awaitable<bool> connection_stream::write_all(asio::const_buffer text) {
    for (;;) {
        const message_parts parts{text};
        const auto accepted = try_write(parts);
        if (!accepted) co_return false;
        text += *accepted;
        if (text.size() == 0 && unsent() == 0) co_return true;
        const bool writable = co_await wait_writable();
        if (!writable) co_return false;
    }
}

asio::awaitable<bool> connection_stream::wait_writable() {
    error_code ec;
    co_await wait_for_socket(tcp_socket::wait_write, ec);
    co_return !ec;
}

bool connection_stream::is_writable() {
    pollfd socket{socket_.native_handle(), POLLOUT, 0};
    return ::poll(&socket, 1, 0) > 0;
}

void connection_stream::finish_sending(error_code& ec) {
    if (channel_) channel_->close_notify();
    socket_.shutdown(tcp_socket::shutdown_send, ec);
}

std::size_t connection_stream::drop_input(asio::mutable_buffer scratch, error_code& ec) {
    return socket_.read_some(scratch, ec);
}

bool connection_stream::peer_has_hung_up() {
    if (!socket_.is_open()) return true;
    pollfd socket{socket_.native_handle(), POLLRDHUP, 0};
    return ::poll(&socket, 1, 0) > 0 && socket.revents != 0;
}

bool connection_stream::is_acknowledged() {
    int unacknowledged = 0;
    // An error says that there is no connection, which the next write reports.
    return unsent() == 0 && (::ioctl(socket_.native_handle(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0);
}

void connection_stream::limit_unacknowledged(std::chrono::milliseconds longest) {
    using user_timeout = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_USER_TIMEOUT>;
    error_code ignored;
    socket_.set_option(user_timeout(static_cast<int>(longest.count())), ignored);
}

void connection_stream::close() {
    if (channel_ && socket_.is_open()) channel_->close_notify();
    error_code ignored;
    socket_.close(ignored);
}

}  // namespace fencegate::http
