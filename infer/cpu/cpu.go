package cpu

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/batchmill/batchmill/infer/device"
)

// Config says how to compute. The zero Config is the best that the machine offers.
type Config struct {
	// Threads is how many threads compute; 0 is GOMAXPROCS, which follows a container's CPU quota.
	Threads int
	// ISA is one of ISAs; "" is the best of them. It changes the speed, never a result.
	ISA string
	// Activations is the arithmetic of quantised weights and of attention. It is part of what decides a result.
	Activations Activations
}

// Activations says in what form activations meet quantised weights; float weights always meet float32. The zero value is
// ActivationsF32.
type Activations string

const (
	// ActivationsF32 is the reference: weights are expanded to float32, keys and values are kept as float32.
	ActivationsF32 Activations = "f32"
	// ActivationsInt16 rounds activations to 16 bits, with a scale for every 32: nearly exact.
	ActivationsInt16 Activations = "int16"
	// ActivationsInt8 rounds activations, keys, values and attention's probabilities to 8 bits: the fast one.
	ActivationsInt8 Activations = "int8"
)

// MaxThreads bounds Config.Threads: more than any machine has, and a sign of a mistake.
const MaxThreads = 1024

// Device is the CPU. It implements device.Device.
type Device struct {
	kernels     *kernels
	pool        *pool
	activations Activations
	weights     arena
	floats      atomic.Bool // a weight that is multiplied as float32 has been loaded
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
	if c.Threads < 1 || c.Threads > MaxThreads {
		return nil, fmt.Errorf("start %d threads: want 1 to %d", c.Threads, MaxThreads)
	}
	switch c.Activations {
	case "":
		c.Activations = ActivationsF32
	case ActivationsF32, ActivationsInt16, ActivationsInt8:
	default:
		return nil, fmt.Errorf("choose activations %q: want f32, int16 or int8", c.Activations)
	}
	return &Device{kernels: k, pool: newPool(c.Threads), activations: c.Activations}, nil
}

// Name is like "cpu (avx512, 8 threads)".
func (d *Device) Name() string {
	return fmt.Sprintf("cpu (%s, %d threads)", d.kernels.name, d.pool.workers)
}

// ISA is the instruction set in use; Threads the number of threads.
func (d *Device) ISA() string  { return d.kernels.name }
func (d *Device) Threads() int { return d.pool.workers }

// Activations is the arithmetic in use.
func (d *Device) Activations() Activations { return d.activations }

// Close ends the threads. No runner may be in use.
func (d *Device) Close() error {
	d.pool.close()
	d.weights.close()
	return nil
}
