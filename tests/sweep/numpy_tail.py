"""Rows of the less common functions of functrans.numpy."""

from __future__ import annotations

_ROWS = {
    "integers": """
        jnp.gcd(i, j)
        jnp.gcd(i8, n8)
        jnp.gcd(iv, 6)
        jnp.lcm(i, j)
        jnp.lcm(4, 6)
        jnp.packbits(b)
        jnp.packbits(i, axis=0)
        jnp.packbits(b, axis=1, bitorder='little')
        jnp.unpackbits(n8)
        jnp.unpackbits(n8, axis=1, count=5)
        jnp.unpackbits(n8, axis=0, count=-3, bitorder='little')
        jnp.unpackbits(n8, count=100)
        jnp.ravel_multi_index((i, j), (3, 4), mode='clip')
        jnp.ravel_multi_index((i, j), (3, 4), mode='wrap', order='F')
        jnp.ravel_multi_index((n8, 1), (3, 4), mode='clip', dtype='int16')
        jnp.unravel_index(i, (3, 4))
        jnp.unravel_index(n8, (30, 40))
        jnp.unravel_index(5, 7)""",
    "parts": """
        jnp.frexp(x)
        jnp.frexp(inf)
        jnp.frexp(i)
        jnp.frexp(g)
        jnp.spacing(x)
        jnp.spacing(3)
        jnp.iscomplex(z)
        jnp.iscomplex(x)
        jnp.isreal(z)
        jnp.isreal(1)
        jnp.unwrap(x * 5)
        jnp.unwrap(x * 5, axis=0, discont=4.0)
        jnp.unwrap(i, period=4)
        jnp.unwrap(q * 3, axis=1, period=2.0)
        jnp.i0(x)
        jnp.i0(i)
        jnp.i0(2.0)""",
    "sets": """
        jnp.unique(iv, size=4)
        jnp.unique(i8, axis=0, size=2)
        jnp.unique(q, axis=-2, size=4, fill_value=0, return_index=True)
        jnp.union1d(i, j, size=8)
        jnp.intersect1d(iv, j, size=5, fill_value=-1, return_indices=True)
        jnp.setdiff1d(i, j, size=6)
        jnp.setdiff1d(iv, j, assume_unique=True, size=4, fill_value=9)
        jnp.setxor1d(x, y, size=20)
        jnp.unique_all(iv, size=6)
        jnp.unique_counts(nans, size=14)
        jnp.unique_inverse(i, size=7)
        jnp.unique_values(x, size=12)""",
    "order": """
        jnp.partition(x, 2)
        jnp.partition(x, 1, axis=0)
        jnp.partition(n8, -1)
        jnp.partition(nans, 2)
        jnp.argpartition(x, 2)
        jnp.argpartition(i, -2, axis=0)
        jnp.sort_complex(x)
        jnp.sort_complex(z)
        jnp.sort_complex(i)
        jnp.argsort(x, dtype='int16')
        jnp.argsort(i, dtype='uint8', descending=True)""",
    "functions of one": """
        jnp.vectorize(lambda a, b: a * b + a)(x, v)
        jnp.vectorize(lambda a, b: (a, b.sum()), signature='(),(n)->(),()')(q, v)
        jnp.vectorize(lambda a, b: a @ b, signature='(m,n),(n)->(m)')(q, v)
        jnp.vectorize(lambda a, b: a @ b, signature='(m,n),(n)->(m)')(q, q[:, :1])
        jnp.vectorize(lambda a, k: a ** k, excluded={1})(x, 3)
        jnp.vectorize(lambda a: a)(none)
        jnp.apply_along_axis(jnp.cumsum, 1, q)
        jnp.apply_along_axis(lambda r: jnp.outer(r, r), 0, q)
        jnp.apply_along_axis(lambda r, k: r[:k], 1, q, 2)
        jnp.apply_over_axes(jnp.sum, q, [0, 2])
        jnp.piecewise(x, [x < 0, x > 0], [lambda r: -r, lambda r: r * r])
        jnp.piecewise(p, [p < 1], [jnp.log, 5])
        jnp.piecewise(i, [i < 0, i > 2], [lambda r: r * 1.5, 5.7, 2.5])
        jnp.frompyfunc(lambda a, b: a * b + 1, 2, 1)(x, v)
        jnp.frompyfunc(lambda a, b: a * b + 1, 2, 1).reduce(x, axis=1)
        jnp.frompyfunc(lambda a, b: a + b, 2, 1, identity=0).reduce(none)
        jnp.frompyfunc(lambda a: (a, a + 1), 1, 2)(i)""",
    "ufunc methods": """
        jnp.add.reduce(q)
        jnp.add.reduce(i, axis=None, initial=3, where=b)
        jnp.multiply.reduce(q, axis=(0, 2), keepdims=True)
        jnp.subtract.reduce(q, axis=1, keepdims=True)
        jnp.subtract.reduce(q, axis=-1, where=q > 0, initial=1.0)
        jnp.maximum.reduce(x, initial=0.0)
        jnp.logaddexp.reduce(x, axis=1)
        jnp.logaddexp2.reduce(i)
        jnp.logical_xor.reduce(i, axis=1)
        jnp.bitwise_or.reduce(iv)
        jnp.add.accumulate(i, axis=1)
        jnp.subtract.accumulate(q, axis=1)
        jnp.minimum.accumulate(x)
        jnp.logaddexp.accumulate(x, axis=1)
        jnp.logical_and.accumulate(v)
        jnp.add.at(x, 1, 3, inplace=False)
        jnp.maximum.at(v, iv % 4, 0.5, inplace=False)
        jnp.logaddexp.at(v, iv % 4, 0.5, inplace=False)
        jnp.negative.at(v, iv % 4, inplace=False)
        jnp.logical_and.at(i, 0, 5, inplace=False)
        jnp.logical_xor.at(v, iv % 4, 0.5, inplace=False)
        jnp.logical_or.accumulate(i[:0])
        jnp.add.accumulate(x[:0])
        jnp.put_along_axis(x[:, :0], iv[:1, None], 9.0, 1, inplace=False)
        jnp.add.reduceat(v, jnp.array([0, 2, 1]))
        jnp.multiply.reduceat(q, jnp.array([0, 2, 1, 1]), axis=2)
        jnp.subtract.outer(x, v)""",
    "floats at their edges": """
        jnp.ldexp(x, i[0, 0] + 60)
        jnp.ldexp(jnp.array([1e-30, 0.0, jnp.inf, jnp.nan]), jnp.array([200, 500, -500, 3]))
        jnp.ldexp(n8, 3)
        jnp.spacing(h)
        jnp.spacing(-x)
        jnp.angle(i)
        jnp.angle(h[0, 0])
        jnp.isinf(2.5)
        jnp.log2(jnp.zeros(3, complex))
        jnp.log10(z)
        jnp.log10(jnp.zeros(3, complex))
        jnp.logaddexp(z, z * 2j)
        jnp.logaddexp2(z, z + 1)
        jnp.floor_divide(x, jnp.array(0.0))
        jnp.divmod(v, jnp.array(-0.0))
        jnp.geomspace(z, 2j, 3)
        jnp.geomspace(p, 8.0, 3)
        jnp.logspace(h, 2, 3, dtype='float32')
        jnp.unwrap(n8, period=4)""",
    "uint32 and signed integers": """
        jnp.divide(i, ~j.astype('uint32'))
        jnp.true_divide(~j.astype('uint32'), n8[0, 0].astype('int8'))
        jnp.arctan2(i, ~j.astype('uint32'))
        jnp.nextafter(~j.astype('uint32'), i)
        jnp.average(~j.astype('uint32'), weights=i)""",
    "nothing left to divide by": """
        jnp.var(x[:1, :1], ddof=2)
        jnp.std(i, ddof=1000.5, where=i > 0)
        jnp.var(x, ddof=3, axis=0, where=x > 0)
        jnp.trapezoid(x[0, :0], x=x[0, :0])""",
    "truth values summed": """
        jnp.sum(i, axis=0, dtype=bool)
        jnp.prod(i, axis=0, dtype=bool)
        jnp.nansum(x, dtype=bool)
        jnp.cumsum(i, axis=0, dtype=bool)
        jnp.cumprod(i, axis=1, dtype=bool)
        jnp.cumulative_prod(iv)
        jnp.cumulative_prod(n8[0])
        jnp.nanstd(x, ddof=1.5, axis=0)
        jnp.nanvar(i, ddof=1.5)""",
    "dtypes of quantiles": """
        jnp.quantile(h, jnp.float32(0.3))
        jnp.percentile(g, jnp.array([30.0, 40.0]))
        jnp.quantile(n8, [0.2, 0.7], method='nearest')
        jnp.nanquantile(h, 0.3, axis=0)""",
    "padding": """
        jnp.pad(x, 2, 'linear_ramp')
        jnp.pad(x, ((1, 2), (3, 0)), 'linear_ramp', end_values=((1, 2), (3, 4)))
        jnp.pad(i, 2, 'linear_ramp', end_values=5)
        jnp.pad(i, (1, 3), 'mean')
        jnp.pad(i, (1, 3), 'median', stat_length=2)
        jnp.pad(x, (1, 3), 'maximum', stat_length=((1, 2), (2, 1)))
        jnp.pad(x, 5, 'reflect', reflect_type='odd')
        jnp.pad(x, ((1, 7), (4, 2)), 'symmetric', reflect_type='odd')
        jnp.pad(x[:, :1], 2, 'reflect', reflect_type='odd')
        jnp.pad(x, 1, constant_values=x[0, :2])
        jnp.pad(x, 2, lambda row, widths, axis, _: row.at[: widths[0]].set(axis + 1.0))""",
    "puts": """
        jnp.insert(x, 9, 9, axis=0)
        jnp.insert(x, -9, 9, axis=1)
        jnp.insert(x, 1, x[:, 0], axis=1)
        jnp.insert(x, 1, x[:2], axis=0)
        jnp.insert(x, slice(0, 2), 5.0, axis=1)
        jnp.roll(x, jnp.array([1, 2]), -1)
        jnp.roll(x, jnp.array([1, 2]), (0, 1))
        jnp.apply_along_axis(lambda r: (r[0], {'a': r[::-1]}), 1, q)
        jnp.vander(v, N=0)
        jnp.ix_(n8[0, :0], n8[0])
        jnp.diagflat(3)
        jnp.blackman(4.5)
        jnp.bincount(jnp.array([1, 2]), length=0)""",
    "polynomials": """
        jnp.polyadd(v, iv)
        jnp.polysub(iv, iv)
        jnp.polymul(v, iv)
        jnp.polymul(z[0], v)
        jnp.polydiv(v6, v)
        jnp.polydiv(v, v6)
        jnp.polyder(v6, 2)
        jnp.polyder(iv)
        jnp.polyder(v, 9)
        jnp.polyint(v, 2, k=3)
        jnp.polyint(iv)
        jnp.poly(v)
        jnp.poly(iv)
        jnp.polyfit(up, v6, 2)
        jnp.polyfit(up, v6, 2, cov=True)
        jnp.polyfit(v, x.T, 1, w=p[0])""",
    "counting": """
        jnp.histogram2d(v6, up, bins=3)
        jnp.histogram2d(v6, up, bins=(2, 3), weights=v6)
        jnp.histogram2d(v6, up, bins=[up, up], density=True)
        jnp.histogramdd(b3, bins=3)
        jnp.histogramdd(b3, bins=3, range=[(-1, 1), None, (0, 2)])
        jnp.cov(x, dtype='bfloat16')
        jnp.cov(x, y, dtype='complex64')
        jnp.corrcoef(x, dtype='float32')""",
    "places": """
        jnp.place(x, b, v6, inplace=False)
        jnp.place(i, b, 7, inplace=False)
        jnp.fill_diagonal(x, v, inplace=False)
        jnp.fill_diagonal(i, 9, inplace=False)
        jnp.choose(iv % 3, [iv, 2, 3.5])
        jnp.choose(i, [x, y], mode='clip')
        jnp.choose(i, [x, v, 1], mode='wrap')
        jnp.mask_indices(3, jnp.triu, 1)
        jnp.resize(x, (5, 3))
        jnp.resize(none, (2,))
        jnp.empty_like(prototype=i).shape[0] + i""",
    "brackets": """
        jnp.mgrid[0:3, 0:2]
        jnp.mgrid[0:3:4j, 0:2]
        jnp.mgrid[0:5:2]
        jnp.ogrid[0:3, 0:2:0.5]
        jnp.r_[1:4, v, 7]
        jnp.r_[0:1:5j]
        jnp.r_['0,2', v, v]
        jnp.r_['1,2,0', v, v]
        jnp.r_['c', v, v]
        jnp.c_[v, v]
        jnp.c_[x, y]
        jnp.c_['1,2', v, v]""",
    "windows": """
        jnp.bartlett(7)
        jnp.blackman(8)
        jnp.hamming(5)
        jnp.hanning(1)
        jnp.kaiser(7, s)
        jnp.kaiser(6, 14)""",
    "methods": """
        x.argpartition(2)
        i.choose([x, y], mode='clip')
        i.byteswap()
        n8.byteswap()
        h.byteswap().view('int16')
        x.ravel(out_sharding=None)
        z.byteswap()
        x.compress(b[:, 0], axis=0, size=2)
        x.transpose()
        x.T.transpose(None)
        v.to_device(None)""",
    "views": """
        x.view('int16')
        h.view('float32')
        x.view('complex64')
        z.view('float32')
        z.view('int16')
        i8.view('int32')
        b.view('uint8')
        n8.view(bool)
        jnp.nan_to_num(jnp.array([complex(1, jnp.inf), complex(jnp.nan, 2)]))
        jnp.array_equiv(x, v6)
        z.astype(bool)""",
    "edges": """
        jnp.cov(x[:, :0])
        jnp.cov(x[:1, :0])
        jnp.cov(x[:0])
        jnp.corrcoef(z)
        jnp.take(x, b[0])
        jnp.take_along_axis(x, iv[:0].reshape(3, 0), 1)
        jnp.put_along_axis(x, iv, 7.0, None, inplace=False)
        jnp.put(x, iv[:0], 7.0, inplace=False)
        jnp.compress(b[0], x, axis=1, size=3, fill_value=v[0])
        jnp.vecmat(z, m)
        jnp.diagonal(x, offset=9)
        jnp.trace(x, offset=iv[0])
        jnp.linalg.diagonal(q, offset=-1)
        jnp.matmul(q, q1[:, :, :3])
        jnp.polyfit(up, v6, 1, full=True)
        jnp.polyfit(up, v6, 1, cov='unscaled')
        jnp.polyfit(v, x.T, 1, cov='unscaled')
        jnp.poly(m + m.T)
        jnp.roots(v, strip_zeros=False)
        jnp.linspace(v[0], v[1], 1)
        jnp.linspace(0, i, 3, axis=-1)
        jnp.fft.hfft(z, norm='forward')
        jnp.fft.fftn(x, s=(2, 5))
        jnp.einsum(x, [0, 1], v, [1], [0])
        jnp.einsum('ij,j', x, v, optimize=False)""",
    "matrices at their edges": """
        jnp.linalg.solve(m, jnp.stack([w, w]))
        jnp.linalg.lstsq(x, v[:3])
        jnp.linalg.lstsq(none.T, v)
        jnp.linalg.lstsq(x.T, v)
        jnp.linalg.det(m[:1, :1])
        jnp.linalg.det(m[:3, :3])
        jnp.linalg.slogdet((3 * jnp.eye(2) + 0 * m[:2, :2]).astype('bfloat16'))
        jnp.linalg.slogdet(m, method='qr')
        jnp.linalg.pinv(none)
        jnp.linalg.matrix_rank(v)
        jnp.linalg.multi_dot([v, m, m, v])
        jnp.linalg.norm(m, 'nuc')
        jnp.linalg.cond(m, 1)
        abs(jnp.linalg.qr(z.T, mode='complete')[1])
        abs(jnp.linalg.qr(x, mode='r'))""",
}  # fmt: skip
TABLE: dict[str, list[str]] = {
    group: [row.strip() for row in rows.strip().splitlines()] for group, rows in _ROWS.items()
}
