// Settings of jemalloc, which reads this variable when the program starts (docs/decisions/0015). Freed memory returns to the
// system after a second, also while the program is idle.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0";
}
