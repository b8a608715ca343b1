#pragma once

#include <gateway/http/session.hpp>

#include <spdlog/fmt/fmt.h>

namespace fencegate::http {

/// One chunk a piece (RFC 9112, 7.1); with HTTP/1.0 the bare bytes.
class session::chunk_writer final : public body_stream {
  public:
    explicit chunk_writer(session& s) : session_(s) {}

    boost::asio::awaitable<bool> send(std::string_view piece) override {
        if (piece.empty()) co_return !session_.peer_gone_;
        co_return co_await write(piece);
    }
    boost::asio::awaitable<outcome> send_expiring(const expiring_text& piece) override {
        session& s = session_;
        if (s.peer_gone_) co_return outcome::caller_gone;
        s.enter(phase::writing, std::chrono::steady_clock::now());
        std::function<void(const std::string&)> make_head = [this](const std::string& body) {
            begin_chunk(body.size());
        };
        const outcome sent = co_await s.send_expiring(piece, std::move(make_head), end_of_chunk());
        finish_writing(sent != outcome::caller_gone);
        co_return sent;
    }
    std::chrono::milliseconds served() const override { return session_.served(); }
    boost::asio::awaitable<bool> finish() { co_return co_await write({}); }

  private:
    void begin_chunk(std::size_t bytes) {
        session_.head_ = session_.http_1_0_ ? std::string() : fmt::format("{:x}\r\n", bytes);
    }
    std::string_view end_of_chunk() const { return session_.http_1_0_ ? "" : "\r\n"; }
    void finish_writing(bool delivered) {
        session_.answer_memory_.reset();
        session_.peer_gone_ = session_.peer_gone_ || !delivered;
        session_.enter(phase::handling, std::chrono::steady_clock::now());
    }

    boost::asio::awaitable<bool> write(std::string_view piece) {
        session& s = session_;
        if (s.peer_gone_) co_return false;
        s.enter(phase::writing, std::chrono::steady_clock::now());
        begin_chunk(piece.size());
        const message_parts parts{boost::asio::buffer(s.head_), boost::asio::buffer(piece),
                                  boost::asio::buffer(end_of_chunk())};
        const auto sent = s.try_write(parts);
        bool delivered = sent.has_value();
        if (delivered && *sent < boost::asio::buffer_size(parts)) delivered = co_await s.write_rest(parts, *sent);
        finish_writing(delivered);
        co_return delivered;
    }
    session& session_;
};

}  // namespace fencegate::http
