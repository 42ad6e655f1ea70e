/* Sixteen numbers at once, in whatever registers the processor has. */

INLINE lanes NAMED(load)(const float *from) { return *(const loose_lanes *)from; }
INLINE void NAMED(store)(float *to, lanes values) { *(loose_lanes *)to = values; }
INLINE lanes NAMED(spread)(float value) { return value - (lanes){}; }
INLINE lanes NAMED(chosen)(marks where, lanes yes, lanes no) {
    return (lanes)(((marks)yes & where) | ((marks)no & ~where));
}
