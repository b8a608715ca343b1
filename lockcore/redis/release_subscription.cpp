#include <redis/release_subscription.hpp>

#include <redis/node_requests.hpp>

#include <utility>

namespace lockcore::redis {

release_subscription::release_subscription(boost::asio::io_context& io, const node_address& address,
                                           std::string wake_mark, listener on_lease_end)
    : wake_mark_(std::move(wake_mark)), on_lease_end_(std::move(on_lease_end)), delay_(io), keepalive_(io) {
    connection::event_handlers handlers;
    handlers.connected = [this] { connection_->subscribe("fg:wake:" + wake_mark_); };
    handlers.lost = [this](const connection::loss&) {
        delay_.expires_after(reconnect_interval);
        delay_.async_wait([self = shared_from_this()](boost::system::error_code e) {
            if (!e && !self->stopped_) self->open();
        });
    };
    handlers.message = [this](const reply& r) { process_message(r); };
    connection_ = std::make_shared<connection>(io, address, std::move(handlers));
}

void release_subscription::start() {
    open();
    schedule_keepalive();
}

void release_subscription::stop() {
    stopped_ = true;
    delay_.cancel();
    keepalive_.cancel();
    connection_->close();
}

void release_subscription::open() {
    is_alive_ = true;
    connection_->open();
}

void release_subscription::schedule_keepalive() {
    keepalive_.expires_after(keepalive_interval);
    keepalive_.async_wait([self = shared_from_this()](boost::system::error_code e) {
        if (e || self->stopped_) return;
        if (std::exchange(self->is_alive_, false)) {
            self->connection_->ping();
        } else {
            self->connection_->drop("does not answer");
        }
        self->schedule_keepalive();
    });
}

void release_subscription::process_message(const reply& r) {
    is_alive_ = true;
    if (r.is_error()) return connection_->drop(r.text);
    if (const auto end = parse_lease_end(r)) on_lease_end_(end->ended, end->resource, end->revoked);
}

}  // namespace lockcore::redis
