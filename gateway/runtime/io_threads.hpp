#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <memory>
#include <thread>
#include <vector>

namespace fencegate::runtime {

/// T threads, each running one io_context of its own, so that what lives on one of them needs no locks.
///
/// Lifetime: everything that has work on a context is destroyed before this, and after stop().
/// Threads:  start and stop from the thread that made it. The threads inherit its signal mask.
class io_threads {
  public:
    /// `count`: 1 to 64 (http.threads).
    explicit io_threads(unsigned count);
    ~io_threads();
    io_threads(const io_threads&) = delete;
    io_threads& operator=(const io_threads&) = delete;

    /// Never empty; valid as long as this is.
    std::vector<boost::asio::io_context*> contexts() const;

    void start();
    /// Stops the contexts and joins the threads. Work that has not ended stays in the contexts until they are
    /// destroyed.
    void stop();

  private:
    using work_guard = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;

    std::vector<std::unique_ptr<boost::asio::io_context>> contexts_;
    std::vector<work_guard> guards_;
    std::vector<std::thread> threads_;
};

}  // namespace fencegate::runtime
