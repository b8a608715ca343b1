#include <redis/wake_feed.hpp>

#include <hiredis/hiredis.h>

namespace lockcore::redis {

wake_feed::wake_feed(boost::asio::io_context& io, const node_address& address, std::string mark, listener on_end)
    : mark_(std::move(mark)), on_end_(std::move(on_end)), delay_(io) {
    connection::events on;
    on.connected = [this] { subscribe(); };
    on.lost = [this](const std::string&) {
        delay_.expires_after(reconnect_every);
        delay_.async_wait([self = shared_from_this()](boost::system::error_code e) {
            if (!e && !self->stopped_) self->connection_->open();
        });
    };
    on.message = [this](const redisReply& r) { message(r); };
    connection_ = std::make_shared<connection>(io, address, std::move(on));
}

void wake_feed::start() {
    connection_->open();
}

void wake_feed::stop() {
    stopped_ = true;
    delay_.cancel();
    connection_->close();
}

void wake_feed::subscribe() {
    connection_->authenticate();
    connection_->subscribe("fg:wake:" + mark_);
}

void wake_feed::message(const redisReply& r) {
    if (r.type == REDIS_REPLY_ERROR) return connection_->drop(std::string(text_of(&r)));
    if (r.type != REDIS_REPLY_ARRAY || r.elements != 3 || text_of(r.element[0]) != "message") return;
    const std::string_view text = text_of(r.element[2]);
    const auto ended = nonce::parse(text.substr(0, nonce::size));
    if (ended && text.size() > nonce::size + 1) on_end_(*ended, text.substr(nonce::size + 1));
}

}  // namespace lockcore::redis
