#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <memory>
#include <thread>
#include <vector>

namespace fencegate::runtime {

/// Threads that each run one io_context of their own, so that objects of one thread need no locks.
///
/// Threads:  start and stop from the thread that constructed it. The threads inherit its signal mask.
/// Lifetime: objects with work on a context are destroyed after stop() and before the io_threads.
class io_threads {
  public:
    /// `count`: 1 to 64 (http.threads).
    explicit io_threads(unsigned count);
    ~io_threads();
    io_threads(const io_threads&) = delete;
    io_threads& operator=(const io_threads&) = delete;

    /// Returns the contexts, one for each thread. Never empty; valid as long as the io_threads.
    std::vector<boost::asio::io_context*> contexts() const;

    void start();
    /// Stops the contexts and joins the threads. Unfinished work stays in the contexts until they are destroyed.
    void stop();

  private:
    using work_guard = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;

    std::vector<std::unique_ptr<boost::asio::io_context>> contexts_;
    std::vector<work_guard> guards_;
    std::vector<std::thread> threads_;
};

}  // namespace fencegate::runtime
