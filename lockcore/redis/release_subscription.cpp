#include <redis/release_subscription.hpp>

#include <hiredis/hiredis.h>

namespace lockcore::redis {

release_subscription::release_subscription(boost::asio::io_context& io, const node_address& address,
                                           std::string wake_mark, listener on_lease_end)
    : wake_mark_(std::move(wake_mark)), on_lease_end_(std::move(on_lease_end)), delay_(io) {
    connection::event_handlers handlers;
    handlers.connected = [this] { subscribe(); };
    handlers.lost = [this](const std::string&) {
        delay_.expires_after(reconnect_interval);
        delay_.async_wait([self = shared_from_this()](boost::system::error_code e) {
            if (!e && !self->stopped_) self->connection_->open();
        });
    };
    handlers.message = [this](const redisReply& r) { process_message(r); };
    connection_ = std::make_shared<connection>(io, address, std::move(handlers));
}

void release_subscription::start() {
    connection_->open();
}

void release_subscription::stop() {
    stopped_ = true;
    delay_.cancel();
    connection_->close();
}

void release_subscription::subscribe() {
    connection_->authenticate([this](const std::string& error) { connection_->drop(error); });
    connection_->subscribe("fg:wake:" + wake_mark_);
}

void release_subscription::process_message(const redisReply& r) {
    if (r.type == REDIS_REPLY_ERROR) return connection_->drop(std::string(text_of(&r)));
    if (r.type != REDIS_REPLY_ARRAY || r.elements != 3 || text_of(r.element[0]) != "message") return;
    const std::string_view text = text_of(r.element[2]);
    const auto ended = nonce::parse(text.substr(0, nonce::size));
    if (ended && text.size() > nonce::size + 1) on_lease_end_(*ended, text.substr(nonce::size + 1));
}

}  // namespace lockcore::redis
