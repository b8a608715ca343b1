#include <redis/connection.hpp>

#include <redis/hiredis_adapter.hpp>
#include <redis/resp_command.hpp>

#include <hiredis/async.h>
#include <boost/asio/post.hpp>

#include <utility>

namespace lockcore::redis {
namespace {

connection& connection_of(const redisAsyncContext* c) {
    return *static_cast<connection*>(c->data);
}

reply make_reply(const redisReply& r) {
    reply out;
    switch (r.type) {
        case REDIS_REPLY_NIL:
            return out;
        case REDIS_REPLY_INTEGER:
            out.type = reply::kind::number;
            out.number = r.integer;
            return out;
        case REDIS_REPLY_ARRAY:
            out.type = reply::kind::array;
            out.elements.reserve(r.elements);
            for (std::size_t i = 0; i < r.elements; ++i)
                out.elements.push_back(make_reply(*r.element[i]));
            return out;
        default:
            out.type = r.type == REDIS_REPLY_ERROR ? reply::kind::error : reply::kind::text;
            out.text.assign(r.str, static_cast<std::size_t>(r.len));
            return out;
    }
}

}  // namespace

connection::connection(boost::asio::io_context& io, const node_address& address, event_handlers handlers)
    : io_(io), address_(address), handlers_(std::move(handlers)), resolver_(io) {}

connection::~connection() = default;

void connection::open() {
    ++generation_;
    candidates_.clear();
    boost::system::error_code not_an_address;
    const auto ip = boost::asio::ip::make_address(address_.host, not_an_address);
    if (!not_an_address) return connect_to({ip, address_.port});
    resolver_.async_resolve(
        address_.host, std::to_string(address_.port),
        [self = shared_from_this(), generation = generation_](
            boost::system::error_code e, const boost::asio::ip::tcp::resolver::results_type& found) {
            if (self->closed_ || generation != self->generation_) return;
            for (const auto& entry : found)
                self->candidates_.insert(self->candidates_.begin(), entry.endpoint());
            self->try_next_address("its host name can't be resolved: " + e.message());
        });
}

void connection::try_next_address(const std::string& failure_reason) {
    if (candidates_.empty()) return report_lost(failure_reason);
    const auto next = candidates_.back();
    candidates_.pop_back();
    connect_to(next);
}

void connection::connect_to(const boost::asio::ip::tcp::endpoint& endpoint) {
    redisAsyncContext* c = redisAsyncConnect(endpoint.address().to_string().c_str(), endpoint.port());
    if (!c || c->err) {
        const std::string reason = c ? c->errstr : "out of memory";
        if (c) redisAsyncFree(c);
        return report_lost(reason);
    }
    context_ = c;
    c->data = this;
    attach(*c, io_);
    redisAsyncSetConnectCallback(c, [](const redisAsyncContext* ctx, int status) {
        connection& self = connection_of(ctx);
        if (ctx != self.context_) return;
        // hiredis itself frees a context that failed to connect, after this callback.
        const std::string reason = status == REDIS_OK ? "" : ctx->errstr;
        if (status != REDIS_OK) self.context_ = nullptr;
        boost::asio::post(self.io_, [link = self.shared_from_this(), reason, generation = self.generation_] {
            if (link->closed_ || generation != link->generation_) return;
            if (!reason.empty()) return link->try_next_address(reason);
            if (link->context_) link->handlers_.connected();
        });
    });
    redisAsyncSetDisconnectCallback(c, [](const redisAsyncContext* ctx, int status) {
        connection& self = connection_of(ctx);
        if (ctx != self.context_) return;
        self.context_ = nullptr;
        self.report_lost(status == REDIS_OK ? "the connection was closed" : ctx->errstr);
    });
}

void connection::drop(const std::string& reason) {
    resolver_.cancel();
    ++generation_;
    redisAsyncContext* c = std::exchange(context_, nullptr);
    // This answers every command in flight with null: at once, or after the running reply handler.
    if (c) redisAsyncFree(c);
    report_lost(reason);
}

void connection::close() {
    closed_ = true;
    resolver_.cancel();
    redisAsyncContext* c = std::exchange(context_, nullptr);
    if (c) redisAsyncFree(c);
}

void connection::report_lost(std::string reason) {
    boost::asio::post(io_, [self = shared_from_this(), reason = std::move(reason), generation = generation_] {
        if (!self->closed_ && generation == self->generation_ && !self->context_) self->handlers_.lost(reason);
    });
}

bool connection::send(const std::string& command, reply_handler on_reply) {
    if (!context_) return false;
    auto* handler = new reply_handler(std::move(on_reply));  // NOLINT(cppcoreguidelines-owning-memory): hiredis owns it
    const auto callback = [](redisAsyncContext*, void* answer, void* data) {
        const std::unique_ptr<reply_handler> owned(static_cast<reply_handler*>(data));
        if (!answer) return (*owned)(nullptr);
        const reply converted = make_reply(*static_cast<const redisReply*>(answer));
        (*owned)(&converted);
    };
    const bool sent =
        redisAsyncFormattedCommand(context_, callback, handler, command.data(), command.size()) == REDIS_OK;
    if (!sent) delete handler;  // NOLINT(cppcoreguidelines-owning-memory)
    return sent;
}

void connection::subscribe(std::string_view channel) {
    if (!context_) return;
    const std::string command = resp_command().arg("SUBSCRIBE").arg(channel).finish();
    // hiredis calls this for every message, and at the end of the connection with null.
    const auto callback = [](redisAsyncContext* ctx, void* answer, void*) {
        connection& self = connection_of(ctx);
        if (answer && !self.closed_ && self.handlers_.message)
            self.handlers_.message(make_reply(*static_cast<const redisReply*>(answer)));
    };
    redisAsyncFormattedCommand(context_, callback, nullptr, command.data(), command.size());
}

}  // namespace lockcore::redis
