package cpu

import (
	"fmt"
	"runtime"

	"github.com/batchmill/batchmill/infer/device"
)

// Config says how to compute. The zero Config is the best that the machine offers.
type Config struct {
	// Threads is how many threads compute; 0 is GOMAXPROCS, which follows a container's CPU quota.
	Threads int
	// ISA is "avx512", "avx2" or "portable"; "" is the best of ISAs. It changes the speed, never a result.
	ISA string
}

// maxThreads bounds Config.Threads: more than any machine has, and a sign of a mistake.
const maxThreads = 1024

// Device is the CPU. It implements device.Device.
type Device struct {
	kernels *kernels
	pool    *pool
}

var _ device.Device = (*Device)(nil)

// New starts the threads; Close ends them.
func New(c Config) (*Device, error) {
	k, err := pick(c.ISA)
	if err != nil {
		return nil, err
	}
	if c.Threads == 0 {
		c.Threads = runtime.GOMAXPROCS(0)
	}
	if c.Threads < 1 || c.Threads > maxThreads {
		return nil, fmt.Errorf("start %d threads: want 1 to %d", c.Threads, maxThreads)
	}
	return &Device{kernels: k, pool: newPool(c.Threads)}, nil
}

// Name is like "cpu (avx512, 8 threads)".
func (d *Device) Name() string {
	return fmt.Sprintf("cpu (%s, %d threads)", d.kernels.name, d.pool.workers)
}

// ISA is the instruction set in use; Threads the number of threads.
func (d *Device) ISA() string  { return d.kernels.name }
func (d *Device) Threads() int { return d.pool.workers }

// Close ends the threads. No runner may be in use.
func (d *Device) Close() error {
	d.pool.close()
	return nil
}
