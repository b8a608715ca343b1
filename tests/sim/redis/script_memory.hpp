#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace sim {

/// The memory of a Lua state. Instead of collecting garbage, the simulation returns the whole state to what it was at
/// save(), as a script of Redis leaves nothing behind; the addresses of what was saved stay the same.
class script_memory {
  public:
    script_memory();

    /// An allocator for lua_newstate; `memory` is a script_memory.
    static void* allocate(void* memory, void* old, std::size_t old_size, std::size_t new_size);

    /// Saves what is allocated now. No script may be running.
    void save();
    /// Releases what was allocated since save(), and undoes all changes. No script may be running.
    void restore();
    /// The same, once much was allocated.
    void restore_if_large();

  private:
    std::byte* begin() const { return blocks_.get(); }

    std::unique_ptr<std::byte[]> blocks_;
    std::size_t used_ = 0;
    std::vector<std::byte> saved_;
};

}  // namespace sim
