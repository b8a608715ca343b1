#pragma once

#include <gateway/config/authority.hpp>
#include <gateway/http/transport/connection_stream.hpp>
#include <gateway/http/transport/session_group.hpp>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace fencegate::http {

/// What a connection keeps from one request to the next. Its session reads requests from it, and its exchange answers the
/// current one over it.
///
/// Threads: the thread of its group's io_context.
class connection : public group_member {
  protected:
    friend class exchange;
    enum class phase { handshaking, reading, handling, writing, lingering };

    connection(tcp_socket socket, const boost::asio::ip::address& peer, std::shared_ptr<session_group> group)
        : group_member(peer), stream_(std::move(socket), group->tls()), group_(std::move(group)) {
        if (stream_.uses_tls()) phase_ = phase::handshaking;
        boost::system::error_code ignored;
        const auto local = stream_.socket().local_endpoint(ignored);
        if (!ignored) local_address_ = canonical_address(local.address().to_string());
    }

    /// Returns whether the connection may serve another request.
    bool may_continue() const { return group_->keeps_alive() && !certificate_withdrawn_; }
    void enter_phase(phase next, std::chrono::steady_clock::time_point now) {
        phase_ = next;
        phase_since_ = now;
    }

    connection_stream stream_;
    std::shared_ptr<session_group> group_;
    boost::asio::cancellation_signal cancel_handler_;
    boost::beast::flat_buffer buffer_;
    phase phase_ = phase::reading;
    bool peer_gone_ = false;
    bool certificate_withdrawn_ = false;  ///< A reload has changed the authorities since the handshake.
    std::string local_address_;
};

}  // namespace fencegate::http
